// checker.hpp: judges each access of a checked kernel: bounds, alignment, initialisation, races by happens-before.
// A Checker belongs to one worker; what it remembers of memory is in cells.hpp, for global memory in GlobalShadow. Its
// functions stand below by the file that has them; those of every access are inline (accesses.hpp, marks.hpp).
// Use: sim/checks/hooks.cpp calls access(); the core tells the rest (sim/core/observer.hpp).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/checks/additions.hpp"
#include "sim/checks/cells.hpp"
#include "sim/checks/clocks.hpp"
#include "sim/checks/global_shadow.hpp"
#include "sim/checks/registers.hpp"
#include "sim/checks/settled.hpp"
#include "sim/core/block.hpp"
#include "sim/core/variables.hpp"
#include "sim/counters/counters.hpp"

namespace flash::simt {

const char* name_of(Access access);  // "read", "volatile write"

// What is known of a place in the program, by its program counter: its index, and which reads the running thread is
// expected to make there next. Those are known to be in order and counted in advance (Checker::foresee).
struct CachedSite {
  std::uintptr_t key;
  std::uintptr_t expected;  // the next one's address
  std::int32_t step;        // from one to the next
  std::uint32_t left;       // how many
  unsigned index;
  std::uint16_t most;  // to be looked at at a time, so far
  bool listed;         // in Checker::foreseen_
};
class SiteCache {
 public:
  CachedSite& operator[](std::uintptr_t key) { return sites_[key % 1024]; }
  void clear() { sites_.fill({}); }

 private:
  std::array<CachedSite, 1024> sites_{};
};
// Of the block whose thread runs, if it is in the sample; elsewhere the empty one.
extern SiteCache no_sites;
extern constinit thread_local SiteCache* running_sites;
// The device's memory, if it is a block that is not in the sample; elsewhere null.
extern constinit thread_local DeviceMemory* unwatched_memory;
// Such a block writes there: the whole array counts as written.
void writes_unwatched(DeviceMemory& memory, const void* address);

class Checker : public Checks {
 public:
  Checker(Worker& worker, GlobalShadow& global);
  void begin_launch();
  // Whether the plain accesses of the blocks from here on are checked. What others write counts as written.
  void watch(bool all) { watches_ = all; }
  void end_launch(const Tally& tally) { counters.tally = tally; }

  // ---- what the core tells and asks ----

  void begin_block() override;
  void end_block(bool regularly) override;
  void switched() override;
  void block_barrier(bool some_exited, Site site) override;
  void thread_ends() override;
  void warp_sync(unsigned warp, unsigned lanes) override;
  void converge(unsigned warp) override;
  std::size_t pending(unsigned warp) override;

  void atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site) override;
  void adds(const void* address, std::size_t bytes, unsigned element, Site site) override;
  void after_atomic(const void* address) override;
  void counts(Counting how, unsigned number) override;
  void fence(Scope scope) override;
  void matrix_row(const void* row, Site site) override;
  void matrix_row_written(void* row, Site site) override;
  void copy_begins(const Copy& copy) override;
  void copy_ends(const Copy& copy, Site wait) override;

  std::uint64_t async_begins(const AsyncOperation& operation) override;
  std::uint64_t async_ends(const AsyncOperation& operation) override;
  bool in_array(const void* address) const override;
  bool read_unwritten() const override { return read_unwritten_; }
  void carries(const AsyncOperation& copy, const std::byte* to, const std::byte* from, std::size_t bytes) override;
  void async_known(unsigned first, unsigned threads, unsigned issuer, std::uint64_t clock, bool in_order) override;
  void async_handed_over(const void* object, unsigned block, unsigned issuer, std::uint64_t clock) override;
  void async_shared(const AsyncOperation& operation) override;
  void fence_proxy() override;

  void releases(const void* object) override;
  void releases_reads(const void* object) override;
  void completes(const void* object) override;
  void acquires(const void* object, unsigned thread, bool far) override;
  void learns_all(const void* object, unsigned thread) override;
  void mbarrier_begins(const void* barrier, unsigned arrivals, Site site) override;
  void mbarrier_used(const void* barrier, const char* instruction, Site site) override;
  bool far_mbarrier(const void* barrier, const char* instruction, bool arrives, Site site) override;
  void mbarrier_ends(const void* barrier, Site site) override;
  void completes_on(const void* barrier, bool fenced, Site copy) override;

  void registers_fenced(unsigned thread) override;
  void product_begins(unsigned thread, const WgmmaOperands& operands, Site site) override;
  void product_adds(const Product& product) override;
  void product_ends(unsigned thread, const Product& product, bool last) override;
  void registers_named(unsigned thread, const void* begin, std::size_t bytes, unsigned left, Site site) override;

  // ---- what the hooks tell: accesses of the running thread (accesses.hpp, accesses.cpp) ----

  // Findings that would make the access itself harmful stop the block.
  template <unsigned kBytes, Access kAccess>
  void access(void* address, std::uintptr_t site_key);
  // The same for the most frequent case: shared memory or settled words, nothing remarkable. False, and nothing done,
  // in any other.
  template <unsigned kBytes, Access kAccess>
  bool quick(void* address, std::uintptr_t site_key);
  // The same for shared memory of another block of the cluster. False: it is none.
  template <unsigned kBytes, Access kAccess>
  [[gnu::noinline]] bool of_other_block(void* address, std::uintptr_t site_key);
  // The same for the running thread's stack.
  bool quick_on_stack(const void* address, unsigned bytes, Access access, std::uintptr_t site_key);
  // A struct's copy, or memcpy and memset: accesses of `widest` bytes at most (a power of two up to 16).
  void range(const void* address, std::size_t bytes, std::size_t widest, Access access, std::uintptr_t site_key);
  // new and malloc, delete and free of a kernel.
  void* allocate(std::size_t bytes, const void* pc);
  void release(void* begin, const void* pc);
  // The compiler's word that a pointer is not a multiple of its type's alignment.
  void misaligned(const void* address, const char* type, unsigned alignment, std::uintptr_t site_key);

  Counters counters;

 private:
  friend class GlobalShadow;
  struct Extra {  // of a thread that uses fences and atomics
    View known;
    // Read by atomics and volatile loads, no fence since; known at the last fence. From and to all, or the own block.
    View pending, pending_near, released, released_near;
    std::vector<const void*> loaded;  // by volatile loads since the last fence (several workers)
    View fenced;  // of what is known: what the async proxy sees, too, since a proxy fence came behind it
    struct {
      Counting how = Counting::no;
      unsigned number = 0;
    } counts;  // what the atomic that is to come is: red_release_add, wait_at_least or another one
  };
  struct Handover {  // at an mbarrier or a named barrier
    struct Views {
      View known, fenced;
    } released, complete, joined;      // the latter: by who released last; the others of its warp often know the same
    Views far_released, far_complete;  // by other blocks: an mbarrier's wait of the cluster's scope learns of it
  };
  // Which way threads went round a barrier: what each site of the block was seen to be.
  enum class Way : std::uint8_t { unknown, usual, of_exited, around };
  struct Passed {
    Way way;
    std::uint16_t thread;  // that exited
  };
  // What is wrong with one access: a read of unwritten memory or an asynchronous copy's destination, which is said at
  // once, or a race; of several that with the access farthest away.
  struct Wrong {
    bool said = false;
    unsigned distance = 0;  // 0: no race
    Access before{};
    Epoch earlier = 0;
  };
  struct Visit {  // by a thread of another block, to this block's shared memory
    Epoch epoch;
    const char* what;
    const void* address;
    std::size_t bytes;
    Checker* by;
  };
  struct BuiltIn {
    const std::byte* begin;
    std::size_t bytes;
  };
  static constexpr Epoch kNever = ~Epoch{0};  // later than any
  // Whose cells are looked at, as the first argument of the templates below: the own block's shared memory (false),
  // global memory (true), shared memory that several blocks of the cluster access.
  static constexpr int kOwn = 0, kGlobalMemory = 1, kCluster = 2;

  // ---- marks.hpp ----

  template <int kSpace>
  bool ordered(Epoch earlier) const;
  template <int kSpace>
  bool collides(Epoch earlier) const;
  bool enough(const Marks& marks) const;
  template <int kSpace, Access kAccess>
  void remember(Cells& cells, std::size_t word, Marks& marks, Epoch mine);
  void remember_in_block(Marks& marks, Epoch mine) const;
  template <int kSpace>
  void remember_one_more(Cells& cells, std::size_t word, Marks& marks, Epoch mine, bool all);
  template <int kSpace>
  void follow(Cells& cells, std::size_t word, Marks& marks, Epoch mine);
  template <int kSpace>
  void lockstep(const Marks& marks, bool more, Access before, Access access, Epoch mine, const void* address,
                std::size_t bytes);
  template <int kSpace, Access kAccess>
  void check(Epoch earlier, Access before, Epoch mine, Wrong& wrong) const;
  template <int kSpace, Access kAccess>
  void check_all(const Marks& marks, bool more, Access before, Epoch mine, Wrong& wrong) const;
  template <int kSpace>
  void overwrite(const Cells::Plane& plane, std::size_t word, std::uint8_t state, Epoch mine, Wrong& wrong);
  template <int kSpace, Access kAccess>
  void leave_unusual(Cells& cells, const Cells::Plane& plane, std::size_t word, bool more, Epoch mine,
                     const void* address, std::size_t bytes);
  template <int kSpace, Access kAccess>
  void touch(Cells& cells, const Cells::Plane& plane, std::size_t word, Epoch mine, bool initialised, Wrong& wrong,
             const void* address, std::size_t bytes);
  template <int kSpace, unsigned kBytes, Access kAccess>
  void touch_all(Cells& cells, std::size_t offset, Epoch mine, bool initialised, const void* address);

  // ---- accesses.hpp, accesses.cpp ----

  template <unsigned kBytes>
  void foresee(CachedSite& cached, bool shared);
  void give_back(CachedSite& cached);
  void forget_foreseen();
  void forget_settled();
  void unsettle(std::uintptr_t address, unsigned bytes, bool shared);
  bool read_by_others(std::size_t word, bool initialised) const;
  template <unsigned kBytes>
  bool settle(const DeviceArray& array, const std::byte* at, unsigned space);
  unsigned site(std::uintptr_t key);
  template <Access kAccess>
  Epoch flags() const;
  std::size_t in_shared(const void* address, std::size_t bytes, Access access, std::uintptr_t site_key);
  template <Access kAccess>
  void row_of_matrix(const void* row, Site site);
  bool is_built_in(const std::byte* at) const;
  bool elsewhere(const void* address, Access access) const;
  void tell_shared(unsigned rank, std::size_t offset, unsigned bytes, Access access, Spot spot) const;
  void tell_global(std::size_t array, std::size_t offset, unsigned bytes, Access access, Spot spot) const;

  // ---- happens_before.cpp ----

  void advance();
  void set_clock(unsigned thread, std::uint64_t clock);
  void meet(const std::vector<unsigned>& threads);
  void not_only_barriers();
  Extra& extra_of(unsigned thread);
  void add_own(Clocks& known);
  void order_volatile(const void* address, bool writes);
  void publish(const void* address, bool atomic);
  void acquire(unsigned thread, const void* address, Scope scope, std::optional<unsigned> least = {});
  void count_up(const void* address, unsigned added);
  bool ordered_at(const Cells& cells, std::size_t word, Epoch earlier) const;
  bool ordered_otherwise(Epoch earlier, bool global) const;
  bool is_over(Epoch earlier, Access before, Access access) const;
  bool ordered_by_views(Epoch earlier, unsigned block) const;
  unsigned distance(Epoch a, Epoch b, bool global) const;
  template <int kSpace>
  void keep(Cells& cells, std::size_t word, const Marks& marks, Epoch epoch);
  std::vector<Epoch> kept(const Marks& marks, bool global) const;
  void drop(const Cells::Plane& plane, std::size_t word, bool global);

  // ---- skipped_barriers.cpp ----

  Passed& way_of(unsigned site);
  void went_around(unsigned site);

  // ---- cp_async.cpp, async.cpp ----

  void write_by_copy(const Copy& copy);
  bool is_of_copy(Epoch epoch) const;  // a write by cp.async
  void global_piece(const AsyncOperation& operation, const AsyncPiece& piece, Access access, Epoch mine,
                    std::uintptr_t site_key);
  void count_traffic(const AsyncOperation& operation);
  template <int kSpace>
  void leave_marks(Cells& cells, std::size_t offset, std::size_t bytes, bool writes, Epoch mine);
  Epoch at_mbarrier(const char* instruction, Site site);
  bool is_fenced(Epoch write) const;
  void overtakes(const Marks& marks, Epoch earlier);
  void needs_proxy_fence(const AsyncOperation& operation, const AsyncPiece& piece, Epoch mine);
  void no_proxy_fence(const AsyncOperation& operation, Epoch mine, Epoch write, Access access,
                      const std::byte* address);
  bool disturbs(std::uint8_t state, std::size_t word, Access access, Epoch mine, bool& said, const void* address,
                std::size_t bytes);
  void disturbs_mbarrier(Access access, Epoch mine, const void* address, std::size_t bytes);
  void disturbs_async(const AsyncOperation& operation, Access access, Epoch mine, const void* address,
                      std::size_t bytes);

  // ---- additions.cpp, registers.cpp ----

  void adds_one(const std::byte* at, unsigned bytes, Epoch mine);
  void adds(const AsyncOperation& operation, Epoch mine);
  void no_order(Epoch earlier, Epoch mine, const std::byte* at, unsigned bytes);
  void on_stack(const std::byte* address, unsigned bytes, Access access, std::uintptr_t site_key);
  void disturbs_product(RegisterLog::Word& word, const std::byte* address, Access access, Epoch mine);

  // ---- uninitialised.cpp, carried.cpp ----

  bool uninitialised(Access access, Epoch mine, const void* address, std::size_t bytes);
  bool written(const std::byte* address) const;
  bool only_padding(const std::byte* address, std::size_t bytes) const;
  bool may_carry(const std::byte* address) const;
  Carried carried_at(const std::byte* address) const;
  Carried take_carried(bool global, std::size_t word, unsigned bytes, bool written);
  void forget_carried(const std::byte* begin, std::size_t bytes);
  bool meets_carried(bool global, std::size_t word, Access access, Epoch mine, const void* address, std::size_t bytes);
  void uses_carried(const Carried& carried, const std::string& what, const char* remedy, FindingSide user);

  // ---- cluster.cpp ----

  Checker& of(const Worker& worker) const { return static_cast<Checker&>(*worker.checks); }
  Checker& home_of(const void* address) const;
  Handover& handover(const void* object);
  bool is_there(const Checker& other, Epoch mine, const char* what, const void* address, std::size_t bytes);
  bool visits(Checker& other, Epoch mine, const char* what, const void* address, std::size_t bytes);
  void no_block_there(Epoch mine, const char* what, const void* address, std::size_t bytes, bool begun);
  void look_at_visits();
  void share(std::size_t offset, std::size_t bytes);
  bool knows_of(unsigned block) const;
  bool is_in_cluster(unsigned block) const;

  // ---- wording.cpp ----

  std::string element(const void* address, std::size_t bytes) const;
  FindingSide side(const char* what, Epoch epoch) const { return side(what, epoch, worker_.block); }
  FindingSide side(const char* what, Epoch epoch, unsigned block) const;
  const char* named(Epoch epoch, Access access) const;
  AsyncSite async_site(unsigned site) const;  // its instruction is null where it is none
  void race(const Wrong& wrong, Access access, Epoch mine, const void* address, std::size_t bytes);
  void see_what_was_stored();
  void assumes_lockstep(Epoch earlier, Access before, Access access, Epoch mine, const void* address,
                        std::size_t bytes);
  void disturbs_copy(const Copy& copy, Access access, Epoch mine, const void* address, std::size_t bytes);
  [[noreturn]] void bad_address(const void* address, std::size_t bytes, Access access, std::uintptr_t site_key);

  // ---- what it knows ----

  Worker& worker_;
  GlobalShadow& global_;
  Checker* home_ = this;  // whose cells the running access looks at: another block's of the cluster
  bool ended_ = false;    // the block
  // What threads of other blocks did last to this block's shared memory: by block and thread.
  std::map<std::pair<unsigned, unsigned>, Visit> visits_;

  RegisterLog registers_;
  bool others_watch_ = false;  // the worker: they want to know of each access
  Space space_;                // of what follows
  Cells cells_;                // of shared memory
  Additions additions_;        // the same
  // Where elements had additions in no fixed order: in which array, and by which two sites; how many elements.
  static constexpr std::size_t kInShared = ~std::size_t{0};
  std::map<std::tuple<std::size_t, unsigned, unsigned>, std::uint64_t> unordered_;

  const std::byte* shared_;
  bool watches_ = true;
  std::size_t shared_bytes_ = 0, quick_bytes_ = 0;  // the latter a multiple of 16

  std::uint64_t now_ = 0, chunk_end_ = 0;
  Epoch block_begin_ = 0, barrier_ = 0;                     // everything of this block before barrier_ is ordered
  Epoch enough_from_ = 0;                                   // barrier_; or never, where two marks are not enough
  Epoch running_ = 0;                                       // epochs_ of the running thread
  std::vector<Epoch> epochs_;                               // per thread: its clock and number, site 0
  std::vector<std::array<std::uint64_t, kWarpSize>> seen_;  // per thread: what it knows of its warp's lanes
  std::vector<std::unique_ptr<Extra>> extra_;
  std::vector<bool> fenced_;  // per thread: made a fence since it last met others
  std::vector<Passed> ways_;  // per site

  // The third and later marks of one kind at one place, where two may not be enough: lanes of a warp that meet in
  // parts, fences, volatile accesses.
  MoreMarks more_;               // of shared memory
  bool point_to_point_ = false;  // the kernel was seen to do so
  bool any_state_ = false;       // some word of shared memory has a state other than 0
  bool any_extra_ = false;

  struct {
    const std::byte* begin;
    std::size_t bytes;
  } copy_{};  // of a struct, while range() looks at its pieces
  // A store that races with a store: does it change the value? It has been made when the next store is announced; a
  // load may be announced before it, as where a struct is copied.
  struct {
    RawFinding* finding;
    const void* address;
    std::size_t bytes;
    std::array<std::byte, 16> before;
    bool announced;  // an access, since
  } stored_{};

  bool asked_ = false;         // the block has made an atomic or a volatile load
  Site barrier_site_;          // the last barrier that some threads did not reach
  bool only_barriers_ = true;  // no other synchronisation in this block since the last barrier

  std::unordered_map<const void*, Published> published_;  // by atomics on shared memory
  std::unordered_map<const void*, Handover> handovers_;
  // Atomics to whose values others were added, at places whose marks they were; the first one, and of those that differ
  // from its thread in bit b, and in no higher one, the first. Whichever threads of a group made a fence, an aligned
  // group of 2^n: if others did not, one of them is here.
  std::unordered_map<const Marks*, std::array<Epoch, kThreadBits>> overtaken_;

  std::unordered_map<std::size_t, Carried> carried_;  // by word of shared memory
  bool copying_ = false;                              // an instruction that copies makes the accesses
  bool tile_written_ = false;                         // some of the tile that it reads has been written
  bool read_unwritten_ = false;                       // it has read what nobody had written

  std::unordered_map<const void*, std::vector<Epoch>> uses_;  // of an mbarrier: the last one of each thread
  // The same by threads of other blocks.
  std::map<const void*, std::map<std::pair<unsigned, unsigned>, Epoch>> far_uses_;
  std::unordered_map<unsigned, AsyncSite> async_sites_;  // of companions' marks, of this launch

  Scope scope_ = Scope::device;  // of the atomic that runs
  struct {
    std::size_t bytes;
    unsigned element;
  } added_{};                           // by it, if it adds floating-point numbers
  std::unique_lock<std::mutex> value_;  // of global memory, while it does (several workers)

  const SharedLayout* layout_ = nullptr;  // of the kernel's __shared__ variables; null: no gaps
  std::array<BuiltIn, 5> built_ins_{};    // this OS thread's threadIdx and companions
  SiteCache site_cache_;
  Settled settled_;
  bool settles_ = false;                    // the block's shared memory lies as settled_ wants it
  std::array<CachedSite*, 64> foreseen_{};  // sites that expect reads of the running thread
  std::size_t foreseen_count_ = 0;
};

}  // namespace flash::simt
