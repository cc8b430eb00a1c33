// shadow.hpp: judges each access of a checked kernel: bounds, alignment, initialisation, races by happens-before.
// A Checker belongs to one worker; what it remembers of memory is in cells.hpp, for global memory in GlobalShadow.
// Use: sim/checks/hooks.cpp calls access(); sim/core/block.cpp reports barriers and warp meetings.
//
// Time. Each block counts its own synchronisations; a clock value belongs to one block (clocks are dealt out in chunks,
// increasing, machine-wide). A thread's accesses carry its clock; each synchronisation gives its participants a new
// one. An earlier access by thread u at clock c happened before the running thread t when one of these holds:
// - it belongs to an earlier launch;
// - same block, and c is before the last __syncthreads;
// - same warp, and t and u met in a __syncwarp at a clock after c (or through others: `seen_` rows are joined);
// - u released and t acquired: fence, atomic or volatile write, the same read, fence or barrier (`View`);
// - it is an atomic whose value, or what further atomics made of it, an atomic read that happened before (follow()).
// Of companions' accesses (cells.hpp) no barrier of their block tells the threads of another block.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/checks/additions.hpp"
#include "sim/checks/cells.hpp"
#include "sim/checks/registers.hpp"
#include "sim/core/block.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/core/variables.hpp"
#include "sim/counters/counters.hpp"
#include "sim/machine_options.hpp"

namespace flash::simt {

// Clocks of one block's threads, before which all is ordered: one for all of them, and of some a later one.
class Clocks {
 public:
  std::uint64_t of(unsigned thread) const;
  void raise_all(std::uint64_t clock);
  void raise(unsigned thread, std::uint64_t clock);
  void join(const Clocks& other);

 private:
  std::uint64_t all_ = 0;
  struct Later {
    unsigned thread;
    std::uint64_t clock;  // above all_
  };
  std::vector<Later> later_;  // by thread
};

// What a thread learned through releases: the clocks of each block. Copies share their contents until one changes: all
// threads of a block learn the same at a barrier, and the last of 1000 blocks learns of 1000.
class View {
 public:
  bool empty() const { return !blocks_ || blocks_->empty(); }
  bool is(const View& other) const { return blocks_ == other.blocks_; }
  void clear() { blocks_.reset(); }
  const Clocks* find(unsigned block) const;
  Clocks& of(unsigned block);
  void join(const View& other);

 private:
  using Blocks = std::map<unsigned, Clocks>;
  Blocks& own();  // not shared any more
  std::shared_ptr<Blocks> blocks_;
};

// What the atomics and volatile stores of one address hand over to who reads it. A fence of block scope counts in its
// block alone, and so does an atomic: who is in another block neither reads its value nor what was there before it.
struct Published {
  struct Views {
    View far, near;  // to all blocks; to the own one
  };
  View far;
  std::map<unsigned, Views> blocks;  // what each gave
  bool own = false;                  // the last atomic was of block scope: there is one block
};

using MoreMarks = std::unordered_map<const Marks*, std::vector<Epoch>>;

class Checker;
const char* name_of(Access access);  // "read", "volatile write"

// Of the marks of an instruction: its name, and what is to be done about a race with it.
struct AsyncSite {
  const char *instruction, *remedy;
};

// What all workers of a machine share.
class GlobalShadow {
 public:
  explicit GlobalShadow(DeviceMemory& memory);
  void forget(const void* begin);  // an array is freed
  void begin_launch(std::size_t workers);
  void end_launch(const std::vector<Checker*>& checkers, KernelReport& report);

  // The first clock of a new chunk, which from now on belongs to the block.
  std::uint64_t new_clocks(unsigned block);
  unsigned block_of(std::uint64_t clock) const { return owners_[clock / kChunk - first_chunk_]; }
  // Until the atomic has changed the value, other atomics wait. Wide ones, of up to 16 bytes, begin at multiples of
  // their size.
  std::unique_lock<std::mutex> lock_value(const void* address) {
    return std::unique_lock(atomics[reinterpret_cast<std::uintptr_t>(address) / 16 % atomics.size()]);
  }
  // Dense index of a site (a program counter or a source location) in this launch; 0 is "unknown".
  unsigned site_index(std::uintptr_t key);
  std::uintptr_t site_key(unsigned index);
  std::vector<UnorderedAdditions> unordered(const std::vector<Checker*>& checkers);

  static constexpr std::uint64_t kChunk = 16;
  DeviceMemory& memory;

 private:
  Space space_;  // of the tables

 public:
  Cells cells;
  Additions additions;
  Epoch launch_begin = 0;
  bool parallel = false;  // several workers: cells are then exchanged atomically

  std::unordered_map<unsigned, AsyncSite> async_sites;  // by index of the site, of all workers
  std::set<const void*> point_to_point;                 // kernels that use more than barriers and whole warps
  MoreMarks more;

  // Has any byte of the array been written?
  bool any_written(const DeviceArray& array);

  // By word of `cells`; and whether there are any.
  std::unordered_map<std::size_t, Carried> carried;
  std::atomic<bool> any_carried{false};

  // Views published by atomics and volatile writes, by address.
  std::mutex mutex;
  std::unordered_map<const void*, Published> published;
  std::atomic<bool> any_published{false};
  // One for all addresses with the same remainder: an atomic's mark and its value change in one step.
  std::array<std::mutex, 256> atomics;

 private:
  std::atomic<std::uint64_t> next_chunk_{1};
  std::uint64_t first_chunk_ = 1;
  Table<unsigned> owners_;         // per chunk of this launch: its block
  std::set<const void*> written_;  // arrays that any_written() has found to be
  std::vector<std::uintptr_t> sites_;
  std::unordered_map<std::uintptr_t, unsigned> site_indices_;
};

class Checker : public Checks {
 public:
  Checker(Worker& worker, GlobalShadow& global);
  void begin_launch();
  void end_launch(const Tally& tally) { counters.tally = tally; }

  // What the scheduler tells (sim/core/observer.hpp).
  void begin_block() override;
  void end_block(bool regularly) override;
  void switched() override;
  void block_barrier(bool some_exited, Site site) override;
  void thread_ends() override;
  void warp_sync(unsigned warp, unsigned lanes) override;
  void converge(unsigned warp) override;
  std::size_t pending(unsigned warp) const override { return counters.pending(warp); }
  void atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site) override;
  void adds(const void* address, std::size_t bytes, unsigned element, Site site) override;
  void after_atomic(const void* address) override;
  void fence(Scope scope) override;
  void matrix_row(const void* row, Site site) override;
  void matrix_row_written(void* row, Site site) override;
  void copy_begins(const Copy& copy) override;
  void copy_ends(const Copy& copy, Site wait) override;
  std::uint64_t async_begins(const AsyncOperation& operation) override;
  std::uint64_t async_ends(const AsyncOperation& operation) override;
  bool read_unwritten() const override { return read_unwritten_; }
  void carries(const AsyncOperation& copy, const std::byte* to, const std::byte* from, std::size_t bytes) override;
  void async_known(unsigned first, unsigned threads, unsigned issuer, std::uint64_t clock, bool in_order) override;
  void async_handed_over(const void* object, unsigned block, unsigned issuer, std::uint64_t clock) override;
  void releases(const void* object) override;
  void completes(const void* object) override;
  void acquires(const void* object, unsigned thread, bool far) override;
  void learns_all(const void* object, unsigned thread) override;
  void mbarrier_begins(const void* barrier, unsigned arrivals, Site site) override;
  void mbarrier_used(const void* barrier, const char* instruction, Site site) override;
  bool far_mbarrier(const void* barrier, const char* instruction, bool arrives, Site site) override;
  void mbarrier_ends(const void* barrier, Site site) override;
  void completes_on(const void* barrier, bool fenced, Site copy) override;
  void fence_proxy() override;
  void async_shared(const AsyncOperation& operation) override;
  void registers_fenced(unsigned thread) override;
  void product_begins(unsigned thread, const WgmmaOperands& operands, Site site) override;
  void product_adds(const Product& product) override;
  void product_ends(unsigned thread, const Product& product, bool last) override;
  void registers_named(unsigned thread, const void* begin, std::size_t bytes, unsigned left, Site site) override;

  // One access of the running thread. Findings that would make the access itself harmful stop the block.
  template <unsigned kBytes, Access kAccess>
  void access(void* address, std::uintptr_t site_key);
  // The same for the most frequent case: shared memory, nothing remarkable. False, and nothing done, in any other.
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
  };
  // Which way threads went round a barrier: what each site of the block was seen to be.
  enum class Way : std::uint8_t { unknown, usual, of_exited, around };
  struct Passed {
    Way way;
    std::uint16_t thread;  // that exited
  };
  Passed& way_of(unsigned site);
  void went_around(unsigned site);
  unsigned site(std::uintptr_t key);
  void tell_shared(unsigned rank, std::size_t offset, unsigned bytes, Access access, Spot spot) const;
  void tell_global(std::size_t array, std::size_t offset, unsigned bytes, Access access, Spot spot) const;
  // What is wrong with one access: a read of unwritten memory or an asynchronous copy's destination, which is said at
  // once, or a race; of several that with the access farthest away.
  struct Wrong {
    bool said = false;
    unsigned distance = 0;  // 0: no race
    Access before{};
    Epoch earlier = 0;
  };
  // Whose cells are looked at, as the first argument of the templates below: the own block's shared memory (false),
  // global memory (true), shared memory that several blocks of the cluster access.
  static constexpr int kOwn = 0, kGlobalMemory = 1, kCluster = 2;
  template <int kSpace>
  void check(Epoch earlier, Access before, Epoch mine, Wrong& wrong) const;
  template <int kSpace>
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
  template <int kSpace>
  bool collides(Epoch earlier) const;
  template <int kSpace>
  void lockstep(const Marks& marks, bool more, Access before, Access access, Epoch mine, const void* address,
                std::size_t bytes);
  template <Access kAccess>
  Epoch flags() const;
  void order_volatile(const void* address, bool writes);
  void publish(const void* address, bool atomic);
  void add_own(Clocks& known);
  Extra& extra_of(unsigned thread);
  void acquire(unsigned thread, const void* address, Scope scope);
  bool is_built_in(const std::byte* at) const;
  bool elsewhere(const void* address, Access access) const;
  template <int kSpace>
  bool ordered(Epoch earlier) const;
  bool ordered_at(const Cells& cells, std::size_t word, Epoch earlier) const;
  bool ordered_otherwise(Epoch earlier, bool global) const;
  bool ordered_by_views(Epoch earlier, unsigned block) const;
  unsigned distance(Epoch a, Epoch b, bool global) const;
  template <int kSpace, Access kAccess>
  void remember(Cells& cells, std::size_t word, Marks& marks, Epoch mine);
  template <int kSpace>
  void remember_one_more(Cells& cells, std::size_t word, Marks& marks, Epoch mine, bool all);
  template <int kSpace>
  void follow(Cells& cells, std::size_t word, Marks& marks, Epoch mine);
  template <int kSpace>
  void keep(Cells& cells, std::size_t word, const Marks& marks, Epoch epoch);
  std::vector<Epoch> kept(const Marks& marks, bool global) const;
  void drop(const Cells::Plane& plane, std::size_t word, bool global);
  bool enough(const Marks& marks) const;
  void advance();
  void not_only_barriers();
  void set_clock(unsigned thread, std::uint64_t clock);
  void meet(const std::vector<unsigned>& threads);

  std::string element(const void* address, std::size_t bytes) const;
  FindingSide side(const char* what, Epoch epoch) const { return side(what, epoch, worker_.block); }
  FindingSide side(const char* what, Epoch epoch, unsigned block) const;
  void race(const Wrong& wrong, Access access, Epoch mine, const void* address, std::size_t bytes);
  void see_what_was_stored();
  void assumes_lockstep(Epoch earlier, Access before, Access access, Epoch mine, const void* address,
                        std::size_t bytes);
  void disturbs_copy(const Copy& copy, Access access, Epoch mine, const void* address, std::size_t bytes);
  void write_by_copy(const Copy& copy);
  bool is_of_copy(Epoch epoch) const;  // a write by cp.async
  const char* named(Epoch epoch, Access access) const;
  void disturbs_async(const AsyncOperation& operation, Access access, Epoch mine, const void* address,
                      std::size_t bytes);
  bool disturbs(std::uint8_t state, std::size_t word, Access access, Epoch mine, bool& said, const void* address,
                std::size_t bytes);
  Epoch at_mbarrier(const char* instruction, Site site);
  void disturbs_mbarrier(Access access, Epoch mine, const void* address, std::size_t bytes);
  void count_traffic(const AsyncOperation& operation);
  void global_piece(const AsyncOperation& operation, const AsyncPiece& piece, Access access, Epoch mine,
                    std::uintptr_t site_key);
  AsyncSite async_site(unsigned site) const;  // its instruction is null where it is none
  template <int kSpace>
  void leave_marks(Cells& cells, std::size_t offset, std::size_t bytes, bool writes, Epoch mine);
  bool is_fenced(Epoch write) const;
  void needs_proxy_fence(const AsyncOperation& operation, const AsyncPiece& piece, Epoch mine);
  void no_proxy_fence(const AsyncOperation& operation, Epoch mine, Epoch write, Access access,
                      const std::byte* address);
  void adds_one(const std::byte* at, unsigned bytes, Epoch mine);
  void adds(const AsyncOperation& operation, Epoch mine);
  void no_order(Epoch earlier, Epoch mine, const std::byte* at, unsigned bytes);
  void overtakes(const Marks& marks, Epoch earlier);
  void on_stack(const std::byte* address, unsigned bytes, Access access, std::uintptr_t site_key);
  void disturbs_product(RegisterLog::Word& word, const std::byte* address, Access access, Epoch mine);
  std::size_t in_shared(const void* address, std::size_t bytes, Access access, std::uintptr_t site_key);
  template <Access kAccess>
  void row_of_matrix(const void* row, Site site);
  bool uninitialised(Access access, Epoch mine, const void* address, std::size_t bytes);
  bool written(const std::byte* address) const;
  bool may_carry(const std::byte* address) const;
  Carried carried_at(const std::byte* address) const;
  Carried take_carried(bool global, std::size_t word, unsigned bytes, bool written);
  void forget_carried(const std::byte* begin, std::size_t bytes);
  bool meets_carried(bool global, std::size_t word, Access access, Epoch mine, const void* address, std::size_t bytes);
  void uses_carried(const Carried& carried, const std::string& what, const char* remedy, FindingSide user);
  bool only_padding(const std::byte* address, std::size_t bytes) const;
  [[noreturn]] void bad_address(const void* address, std::size_t bytes, Access access, std::uintptr_t site_key);

  // ---- clusters (cluster.cpp) ----
  Checker& of(const Worker& worker) const { return static_cast<Checker&>(*worker.checks); }
  Checker& home_of(const void* address) const;
  bool is_there(const Checker& other, Epoch mine, const char* what, const void* address, std::size_t bytes);
  bool visits(Checker& other, Epoch mine, const char* what, const void* address, std::size_t bytes);
  void no_block_there(Epoch mine, const char* what, const void* address, std::size_t bytes, bool begun);
  void look_at_visits();
  void share(std::size_t offset, std::size_t bytes);
  bool knows_of(unsigned block) const;
  bool is_in_cluster(unsigned block) const;

  Worker& worker_;
  GlobalShadow& global_;
  Checker* home_ = this;  // whose cells the running access looks at: another block's of the cluster
  bool ended_ = false;    // the block
  // What threads of other blocks did last to this block's shared memory: by block and thread.
  struct Visit {
    Epoch epoch;
    const char* what;
    const void* address;
    std::size_t bytes;
    Checker* by;
  };
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
  std::size_t shared_bytes_ = 0, quick_bytes_ = 0;  // the latter a multiple of 16
  std::uint64_t now_ = 0, chunk_end_ = 0;
  Epoch block_begin_ = 0, barrier_ = 0;                     // everything of this block before barrier_ is ordered
  Epoch written_before_ = 0;                                // barrier_ - block_begin_
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
  struct Handover {                                       // at an mbarrier or a named barrier
    struct Views {
      View known, fenced;
    } released, complete, joined;      // the latter: by who released last; the others of its warp often know the same
    Views far_released, far_complete;  // by other blocks: an mbarrier's wait of the cluster's scope learns of it
  };
  std::unordered_map<const void*, Handover> handovers_;
  Handover& handover(const void* object);
  // Atomics to whose values others were added, at places whose marks they were; the first one, and of those that differ
  // from its thread in bit b, and in no higher one, the first. Whichever threads of a group made a fence, an aligned
  // group of 2^n: if others did not, one of them is here.
  std::unordered_map<const Marks*, std::array<Epoch, kThreadBits>> overtaken_;
  std::unordered_map<std::size_t, Carried> carried_;          // by word of shared memory
  bool copying_ = false;                                      // an instruction that copies makes the accesses
  bool tile_written_ = false;                                 // some of the tile that it reads has been written
  bool read_unwritten_ = false;                               // it has read what nobody had written
  std::unordered_map<const void*, std::vector<Epoch>> uses_;  // of an mbarrier: the last one of each thread
  // The same by threads of other blocks.
  std::map<const void*, std::map<std::pair<unsigned, unsigned>, Epoch>> far_uses_;
  std::unordered_map<unsigned, AsyncSite> async_sites_;  // of companions' marks, of this launch
  Scope scope_ = Scope::device;                          // of the atomic that runs
  struct {
    std::size_t bytes;
    unsigned element;
  } added_{};                             // by it, if it adds floating-point numbers
  std::unique_lock<std::mutex> value_;    // of global memory, while it does (several workers)
  const SharedLayout* layout_ = nullptr;  // of the kernel's __shared__ variables; null: no gaps
  struct BuiltIn {
    const std::byte* begin;
    std::size_t bytes;
  };
  std::array<BuiltIn, 5> built_ins_{};  // this OS thread's threadIdx and companions
  struct CachedSite {
    std::uintptr_t key;
    unsigned index;
  };
  std::array<CachedSite, 1024> site_cache_;
};

// ---- The path that every access takes ----------------------------------------------------------------------------

inline unsigned Checker::site(std::uintptr_t key) {
  CachedSite& cached = site_cache_[key % 1024];
  if (cached.key != key) [[unlikely]]
    cached = {key, global_.site_index(key)};
  return cached.index;
}

template <Access kAccess>
[[gnu::always_inline]] inline Epoch Checker::flags() const {
  if (is_atomic(kAccess)) return kLastEpoch | (scope_ == Scope::block ? kBlockEpoch : 0);
  return kAccess == Access::volatile_write && fenced_[worker_.current] ? kFlagEpoch : 0;
}

template <int kSpace>
[[gnu::always_inline]] inline bool Checker::ordered(Epoch earlier) const {
  if (kSpace == kCluster) return earlier < block_begin_ || ordered_otherwise(earlier, true);
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  if (!kGlobal && (earlier < barrier_ || thread_of(earlier) == thread_of(running_))) return true;
  if (!kGlobal && only_barriers_) return false;
  if (kGlobal && earlier < global_.launch_begin) return true;
  return ordered_otherwise(earlier, kGlobal);
}

template <int kSpace>
[[gnu::always_inline]] inline bool Checker::collides(Epoch earlier) const {
  const Epoch first = kSpace == kGlobalMemory ? global_.launch_begin : kSpace == kCluster ? block_begin_ : barrier_;
  return earlier >= first && !ordered<kSpace>(earlier);
}

// The frequent case: two threads of this block are there, as far apart as the running one could make them.
[[gnu::always_inline]] inline bool Checker::enough(const Marks& marks) const {
  const auto same_warp = [](Epoch a, Epoch b) { return ((a ^ b) & ((1u << kThreadBits) - kWarpSize)) == 0; };
  return marks.other >= enough_from_ &&  // then marks.one is as young: `other` is set beside one that collides
         (!same_warp(marks.one, marks.other) || (only_barriers_ && same_warp(marks.one, running_)));
}

// Puts `mine` among the marks, unless two that are at least as far apart are there already.
template <int kSpace, Access kAccess>
[[gnu::always_inline]] inline void Checker::remember(Cells& cells, std::size_t word, Marks& marks, Epoch mine) {
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  if (marks.one < (kGlobal              ? global_.launch_begin
                   : kSpace == kCluster ? block_begin_
                                        : barrier_) &&
      !(kGlobal && global_.parallel))
    marks.one = mine;
  else if (kSpace != kOwn || is_volatile(kAccess) || !enough(marks))
    remember_one_more<kSpace>(cells, word, marks, mine, is_volatile(kAccess) || point_to_point_);
}

template <int kSpace>
void Checker::remember_one_more(Cells& cells, std::size_t word, Marks& marks, Epoch mine, bool all) {
  constexpr bool kGlobal = kSpace == kGlobalMemory, kFar = kSpace != kOwn;
  for (Epoch* mark : {&marks.one, &marks.other}) {
    for (;;) {
      Epoch old = __atomic_load_n(mark, __ATOMIC_RELAXED);
      const bool again = !kFar && thread_of(old) == thread_of(mine);  // what knows of this one knows of that
      const bool near = again || !collides<kSpace>(old);
      if (!near && mark == &marks.one) break;  // keep it, try the other one
      if (!near && distance(mine, marks.one, kFar) <= distance(old, marks.one, kFar)) {
        if (all) keep<kSpace>(cells, word, marks, mine);
        return;
      }
      if (!kGlobal || !global_.parallel)
        *mark = mine;
      else if (!__atomic_compare_exchange_n(mark, &old, mine, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        continue;
      if (all && !near) keep<kSpace>(cells, word, marks, old);
      return;
    }
  }
}

// An atomic comes after the one whose value it reads (PTX: observation order), and after those whose values that one
// read. What comes after it comes after all of them, so its mark takes the place of theirs.
template <int kSpace>
void Checker::follow(Cells& cells, std::size_t word, Marks& marks, Epoch mine) {
  const auto set = [](Epoch& mark, Epoch to) { __atomic_store_n(&mark, to, __ATOMIC_SEQ_CST); };
  for (Epoch* mark : {&marks.one, &marks.other}) {
    if (!(*mark & kLastEpoch)) continue;
    if (!((*mark | mine) & kBlockEpoch) || distance(mine, *mark, kSpace != kOwn) < 3) {
      if (kSpace != kGlobalMemory && !(cells.state[word] & Cells::kMbarrier) && collides<kSpace>(*mark))
        overtakes(marks, *mark);
      return set(*mark, mine);
    }
    set(*mark, *mark & ~kLastEpoch);
  }
  for (Epoch* mark : {&marks.one, &marks.other})
    if (!collides<kSpace>(*mark)) return set(*mark, mine);
  keep<kSpace>(cells, word, marks, marks.other);
  set(marks.other, mine);
}

// Is there a volatile access of another lane of the warp to which this one has no order? One of the two is a store.
template <int kSpace>
void Checker::lockstep(const Marks& marks, bool more, Access before, Access access, Epoch mine, const void* address,
                       std::size_t bytes) {
  const auto meets = [&](Epoch earlier) {
    return !(earlier & kFlagEpoch) && collides<kSpace>(earlier) && distance(mine, earlier, kSpace != kOwn) == 1 &&
           !(before == access && site_index_of(earlier) == site_index_of(mine));
  };
  for (const Epoch earlier : {marks.one, marks.other})
    if (meets(earlier)) return assumes_lockstep(earlier, before, access, mine, address, bytes);
  if (more)
    for (const Epoch earlier : kept(marks, kSpace == kGlobalMemory))
      if (meets(earlier)) return assumes_lockstep(earlier, before, access, mine, address, bytes);
}

// Is the earlier access unordered with the running one, and farther away than what was found so far?
template <int kSpace>
[[gnu::always_inline]] inline void Checker::check(Epoch earlier, Access before, Epoch mine, Wrong& wrong) const {
  if (!collides<kSpace>(earlier)) [[likely]]
    return;
  const unsigned far = distance(mine, earlier, kSpace != kOwn);
  if (far > wrong.distance) wrong.distance = far, wrong.before = before, wrong.earlier = earlier;
}

template <int kSpace>
[[gnu::always_inline]] inline void Checker::check_all(const Marks& marks, bool more, Access before, Epoch mine,
                                                      Wrong& wrong) const {
  check<kSpace>(marks.one, before, mine, wrong), check<kSpace>(marks.other, before, mine, wrong);
  if (more) [[unlikely]]
    for (const Epoch earlier : kept(marks, kSpace == kGlobalMemory)) check<kSpace>(earlier, before, mine, wrong);
}

// A plain write collides with everything. What comes later and collides with what was here collides with it, too.
template <int kSpace>
[[gnu::always_inline]] inline void Checker::overwrite(const Cells::Plane& plane, std::size_t word, std::uint8_t state,
                                                      Epoch mine, Wrong& wrong) {
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  const bool more = state & Cells::kMore;
  Epoch& write = plane.write[word];
  Marks& readers = plane.readers[word];
  Epoch before = mine;
  if (kGlobal && global_.parallel)
    before = __atomic_exchange_n(&write, mine, __ATOMIC_SEQ_CST);
  else
    std::swap(before, write);
  if ((readers.one | readers.other) != 0) {
    check_all<kSpace>(readers, more, Access::read, mine, wrong);
    readers = {};
  }
  if (state & Cells::kUnusual) [[unlikely]] {
    check_all<kSpace>(plane.atomics[word], more, Access::atomic, mine, wrong);
    check_all<kSpace>(plane.loads[word], more, Access::volatile_read, mine, wrong);
    check_all<kSpace>(plane.stores[word], more, Access::volatile_write, mine, wrong);
    plane.atomics[word] = plane.loads[word] = plane.stores[word] = {};
  }
  check<kSpace>(before, Access::write, mine, wrong);
  if (more) [[unlikely]]
    drop(plane, word, kGlobal);
}

// The mark of an atomic or a volatile access; the cell is known to have such.
template <int kSpace, Access kAccess>
[[gnu::always_inline]] inline void Checker::leave_unusual(Cells& cells, const Cells::Plane& plane, std::size_t word,
                                                          bool more, Epoch mine, const void* address,
                                                          std::size_t bytes) {
  if (is_volatile(kAccess) && !(mine & kFlagEpoch)) {
    lockstep<kSpace>(plane.stores[word], more, Access::volatile_write, kAccess, mine, address, bytes);
    if (is_write(kAccess))
      lockstep<kSpace>(plane.loads[word], more, Access::volatile_read, kAccess, mine, address, bytes);
  }
  // Who adds reads no value, so that no order follows from it.
  if constexpr (is_reduction(kAccess))
    remember_one_more<kSpace>(cells, word, plane.atomics[word], mine, false);
  else if constexpr (is_atomic(kAccess))
    follow<kSpace>(cells, word, plane.atomics[word], mine);
  else
    remember<kSpace, kAccess>(cells, word, (is_write(kAccess) ? plane.stores : plane.loads)[word], mine);
  if (kAccess == Access::volatile_write)  // no atomic reads what was there
    for (Epoch* mark : {&plane.atomics[word].one, &plane.atomics[word].other})
      if (*mark & kLastEpoch) __atomic_fetch_and(mark, ~kLastEpoch, __ATOMIC_RELAXED);
}

// One cell. Leave the own mark first, then look at the others': of two workers at one cell at least one sees the other.
template <int kSpace, Access kAccess>
[[gnu::always_inline]] inline void Checker::touch(Cells& cells, const Cells::Plane& plane, std::size_t word, Epoch mine,
                                                  bool initialised, Wrong& wrong, const void* address,
                                                  std::size_t bytes) {
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  const std::uint8_t state = cells.state[word];
  constexpr std::uint8_t kTaken = kGlobal ? 0 : Cells::kInFlight | Cells::kAsync | Cells::kMbarrier;
  constexpr std::uint8_t kOfOthers = kSpace == kOwn ? Cells::kCluster : 0;
  if (state & (kTaken | kOfOthers | Cells::kCarried)) [[unlikely]] {
    if (state & kTaken && disturbs(state, word, kAccess, mine, wrong.said, address, bytes)) return;
    if constexpr (kSpace == kOwn)
      if (state & Cells::kCluster)
        return touch<kCluster, kAccess>(cells, plane, word, mine, initialised, wrong, address, bytes);
    if (state & Cells::kCarried && !initialised && !wrong.said)
      wrong.said = meets_carried(kGlobal, word, kAccess, mine, address, bytes);
  }
  if constexpr (kAccess == Access::write) return overwrite<kSpace>(plane, word, state, mine, wrong);

  const bool more = state & Cells::kMore;
  bool unusual = state & Cells::kUnusual;
  Epoch& write = plane.write[word];
  Marks& readers = plane.readers[word];
  const Epoch begin = kGlobal ? Epoch{1} : block_begin_;  // older marks are of memory that was fresh since
  if (needs_value(kAccess)) {
    const bool written = write >= begin || initialised ||
                         (unusual && (plane.atomics[word].one >= begin || plane.stores[word].one >= begin));
    if (!written && !wrong.said && wrong.distance == 0) [[unlikely]]
      wrong.said = uninitialised(kAccess, mine, address, bytes);
  }
  if constexpr (kAccess == Access::read) {
    remember<kSpace, kAccess>(cells, word, readers, mine);
  } else {
    if (!unusual) cells.set(word, Cells::kUnusual), unusual = true, home_->any_state_ = true;
    leave_unusual<kSpace, kAccess>(cells, plane, word, more, mine, address, bytes);
  }
  check<kSpace>(__atomic_load_n(&write, __ATOMIC_RELAXED), Access::write, mine, wrong);
  if (is_write(kAccess)) check_all<kSpace>(readers, more, Access::read, mine, wrong);
  if (kAccess == Access::read && unusual) {
    check_all<kSpace>(plane.atomics[word], more, Access::atomic, mine, wrong);
    check_all<kSpace>(plane.stores[word], more, Access::volatile_write, mine, wrong);
  }
}

template <int kSpace, unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline void Checker::touch_all(Cells& cells, std::size_t offset, Epoch mine, bool initialised,
                                                      const void* address) {
  Wrong wrong;
  std::size_t word = offset / 4;
  const auto touch_one = [&](unsigned plane) {
    touch<kSpace, kAccess>(cells, cells.planes[plane], word, mine, initialised, wrong, address, kBytes);
  };
  const auto judge = [&] {
    if (wrong.distance > 0 && !wrong.said) [[unlikely]]
      race(wrong, kAccess, mine, address, kBytes);
  };
  if constexpr (kBytes < 4) {
    unsigned level = cells.state[word] & Cells::kLevel;
    if (level == Cells::kSplitting || level < (kBytes == 2 ? Cells::kHalves : Cells::kSingle)) [[unlikely]]
      level = cells.split(word, kBytes) & Cells::kLevel, home_->any_state_ = true;
    touch_one(offset % 4);
    if (kBytes == 2 && level == Cells::kSingle) touch_one(offset % 4 + 1);
    return judge();
  }
  for (std::size_t i = 0; i < kBytes / 4; ++i, ++word) {
    touch_one(0);
    const unsigned level = cells.state[word] & Cells::kLevel;
    if (level == 0) [[likely]]
      continue;
    if (level != Cells::kHalves) touch_one(1);
    touch_one(2);
    if (level != Cells::kHalves) touch_one(3);
    if (kSpace != kGlobalMemory && kAccess == Access::write)
      cells.state[word] &= static_cast<std::uint8_t>(~Cells::kLevel);
  }
  judge();
}

template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline bool Checker::quick(void* address, std::uintptr_t site_key) {
  if constexpr (kBytes < 4 || !is_plain(kAccess)) return false;
  const auto in_shared = static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared_);
  const CachedSite& cached = site_cache_[site_key % 1024];
  if (in_shared >= quick_bytes_ || in_shared % kBytes != 0 || cached.key != site_key) return false;
  if (is_write(kAccess) && layout_ && !layout_->holds(in_shared, kBytes)) return false;  // gaps are never written
  // Look first: was the memory written in this block, before the last barrier, and are the readers as they should be?
  constexpr unsigned kWords = kBytes < 4 ? 1 : kBytes / 4;
  const std::uint8_t* const state = &cells_.state[in_shared / 4];
  Epoch* const write = &cells_.planes[0].write[in_shared / 4];
  Marks* const readers = &cells_.planes[0].readers[in_shared / 4];
  for (unsigned i = 0; i < kWords; ++i) {
    if (state[i] != 0) return false;
    if (is_write(kAccess) ? write[i] >= barrier_ : write[i] - block_begin_ >= written_before_) return false;
    if (readers[i].one >= barrier_ && (is_write(kAccess) || !enough(readers[i]))) return false;
  }
  if (!counters.join(cached.index, reinterpret_cast<std::uintptr_t>(address), kSharedSpace)) return false;
  // Then write.
  for (unsigned i = 0; i < kWords; ++i) {
    if (!is_write(kAccess) && readers[i].one >= barrier_) [[likely]]
      continue;
    const Epoch mine = running_ | Epoch{cached.index} << kThreadBits;
    if (is_write(kAccess))
      write[i] = mine, readers[i] = {};
    else
      readers[i].one = mine;
  }
  return true;
}

[[gnu::always_inline]] inline bool Checker::quick_on_stack(const void* address, unsigned bytes, Access access_,
                                                           std::uintptr_t site_key) {
  const auto* at = static_cast<const std::byte*>(address);
  if (static_cast<std::size_t>(at - worker_.stack) >= worker_.stack_bytes || stored_.finding) return false;
  if (registers_.fenced(worker_.current)) on_stack(at, bytes, access_, site_key);
  return true;
}

template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline void Checker::access(void* address, std::uintptr_t site_key) {
  if (stored_.finding) [[unlikely]]
    if (is_write(kAccess) || std::exchange(stored_.announced, true)) see_what_was_stored();
  const auto* at = static_cast<const std::byte*>(address);
  const std::size_t in_shared = static_cast<std::size_t>(at - shared_);
  if (in_shared < shared_bytes_) {
    if (in_shared + kBytes > shared_bytes_ || in_shared % kBytes != 0 ||
        (layout_ && !layout_->holds(in_shared, kBytes))) [[unlikely]] {
      if (is_built_in(at)) return;
      bad_address(address, kBytes, kAccess, site_key);
    }
    const unsigned s = site(site_key);
    const Epoch mine = running_ | Epoch{s} << kThreadBits | flags<kAccess>();
    counters.log(s, reinterpret_cast<std::uintptr_t>(at), kBytes, kAccess, kSharedSpace);
    if (others_watch_) [[unlikely]]
      tell_shared(worker_.rank, in_shared, kBytes, kAccess, site_key);
    touch_all<false, kBytes, kAccess>(cells_, in_shared, mine, false, address);
    if (is_volatile(kAccess)) order_volatile(address, is_write(kAccess));
    return;
  }
  if (global_.memory.contains(address)) {
    const std::size_t owner = global_.memory.owner(address);
    if (owner >= global_.memory.arrays.size()) [[unlikely]]
      bad_address(address, kBytes, kAccess, site_key);
    const DeviceArray& array = global_.memory.arrays[owner];
    const std::size_t in_array = static_cast<std::size_t>(at - array.begin);
    if (in_array >= array.bytes || in_array + kBytes > array.bytes || in_array % kBytes != 0 || !array.live ||
        (is_write(kAccess) && array.constant)) [[unlikely]]
      bad_address(address, kBytes, kAccess, site_key);
    const unsigned s = site(site_key);
    const Epoch mine = running_ | Epoch{s} << kThreadBits | flags<kAccess>();
    if (is_atomic(kAccess) && global_.parallel) value_ = global_.lock_value(address);
    // The constant cache serves one address at a time and is no part of global memory's traffic.
    if (!array.constant)
      counters.log(s, reinterpret_cast<std::uintptr_t>(at), kBytes, kAccess, static_cast<unsigned>(owner));
    if (others_watch_ && !array.constant) [[unlikely]]
      tell_global(owner, in_array, kBytes, kAccess, site_key);
    if (is_write(kAccess) && !worker_.copies.empty()) [[unlikely]]
      if (const Copy* const copy = worker_.copies.reading(address, kBytes))
        disturbs_copy(*copy, kAccess, mine, address, kBytes);
    if (!worker_.async.empty()) [[unlikely]]
      if (const AsyncOperation* const operation =
              worker_.async.disturbed(address, kBytes, is_write(kAccess), is_atomic(kAccess)))
        disturbs_async(*operation, kAccess, mine, address, kBytes);
    touch_all<true, kBytes, kAccess>(global_.cells, global_.memory.offset(address), mine, array.initialised, address);
    if (is_volatile(kAccess)) order_volatile(address, is_write(kAccess));
    return;
  }
  if (static_cast<std::size_t>(at - worker_.stack) < worker_.stack_bytes) {
    if (registers_.fenced(worker_.current)) on_stack(at, kBytes, kAccess, site_key);
    return;
  }
  if (worker_.cluster && of_other_block<kBytes, kAccess>(address, site_key)) return;
  if (!elsewhere(address, kAccess)) [[unlikely]]
    bad_address(address, kBytes, kAccess, site_key);
}

// Shared memory of another block of the cluster.
template <unsigned kBytes, Access kAccess>
[[gnu::noinline]] bool Checker::of_other_block(void* address, std::uintptr_t site_key) {
  const Worker* const owner = worker_.cluster->owner(address);
  if (!owner || owner == &worker_) return false;
  Checker& other = of(*owner);
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - owner->shared);
  if (offset + kBytes > owner->shared_bytes || offset % kBytes != 0 || (layout_ && !layout_->holds(offset, kBytes)))
    bad_address(address, kBytes, kAccess, site_key);
  const unsigned s = site(site_key);
  const Epoch mine = running_ | Epoch{s} << kThreadBits | flags<kAccess>();
  counters.log(s, reinterpret_cast<std::uintptr_t>(address), kBytes, kAccess, kClusterSpace);
  if (others_watch_) tell_shared(owner->rank, offset, kBytes, kAccess, site_key);
  if (!visits(other, mine, name_of(kAccess), address, kBytes)) return true;
  other.share(offset, kBytes);
  home_ = &other;
  touch_all<kCluster, kBytes, kAccess>(other.cells_, offset, mine, false, address);
  home_ = this;
  if (is_volatile(kAccess)) order_volatile(address, is_write(kAccess));
  return true;
}

}  // namespace flash::simt
