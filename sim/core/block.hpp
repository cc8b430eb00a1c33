// block.hpp: one worker: an OS thread that runs thread blocks one after another, each CUDA thread as a fiber.
// A fiber runs until it must wait (barrier, warp operation) or ends, then the next ready one runs. When none is
// ready and some have not ended, the block is stuck, and explain_stall() says why.
// Use: Machine::launch gives each worker a Launch and block indices; kernels enter through sim/core/simt.hpp.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/async.hpp"
#include "sim/core/bulk.hpp"
#include "sim/core/cluster.hpp"
#include "sim/core/copies.hpp"
#include "sim/core/fiber.hpp"
#include "sim/core/findings.hpp"
#include "sim/core/members.hpp"
#include "sim/core/named_barriers.hpp"
#include "sim/core/observer.hpp"
#include "sim/core/outside.hpp"
#include "sim/core/padding.hpp"
#include "sim/core/simt.hpp"
#include "sim/core/stuck.hpp"
#include "sim/core/tracer.hpp"
#include "sim/core/warpgroup.hpp"

namespace flash::simt {

// A block's shared memory lies inside a region that it does not fill, so that indices a little too small are noticed.
constexpr std::size_t kSharedRegion = 512 * 1024, kSharedBefore = 128 * 1024;
// __shared__ variables lie among the program's others instead, at most so far apart (sim/core/variables.hpp).
constexpr std::size_t kSharedSpan = 8 * 1024 * 1024;
constexpr unsigned kWarpSize = 32, kMaxThreads = 1024;

class DeviceMemory;

// The threads that could run, as a set of bits; choosing the next one is the schedule.
class ReadySet {
 public:
  void insert(unsigned thread) {
    words_[thread / 64] |= std::uint64_t{1} << thread % 64;
    summary_ |= 1u << thread / 64;
  }
  void insert_lanes(unsigned first, unsigned lanes) {  // of the warp that begins with thread `first`
    words_[first / 64] |= std::uint64_t{lanes} << first % 64;
    summary_ |= 1u << first / 64;
  }
  bool empty() const { return summary_ == 0; }
  unsigned count() const;
  unsigned pop(Order order, std::mt19937_64& random) {
    if (order != Order::forward) return pop_otherwise(order, random);
    const unsigned word = static_cast<unsigned>(std::countr_zero(summary_));
    return remove(word, static_cast<unsigned>(std::countr_zero(words_[word])));
  }
  void clear() { *this = {}; }

 private:
  unsigned pop_otherwise(Order order, std::mt19937_64& random);
  unsigned remove(unsigned word, unsigned bit) {
    words_[word] &= ~(std::uint64_t{1} << bit);
    if (words_[word] == 0) summary_ &= ~(1u << word);
    return word * 64 + bit;
  }
  std::array<std::uint64_t, kMaxThreads / 64> words_{};
  unsigned summary_ = 0;
};

enum class State : std::uint8_t { ready, spins, polls, at_barrier, at_warp_op, at_mbarrier, at_cluster, ended };

struct Thread {
  uint3 index;
  State state;
  std::uint16_t warp, lane;
  Site site;       // where it waits
  const void* pc;  // the same where no source location is known: it spins on a volatile load
  unsigned mask;   // of the warp operation that it waits in
  WarpOp op;
  unsigned atomics_in_a_row;    // and volatile loads: a spinning thread lets others run
  std::uint64_t value, result;  // operand and result of a warp operation, predicate and vote of a barrier; an mbarrier
  unsigned param, width;        // at an mbarrier: the parity; 1: its wait has the cluster's scope
  std::uint32_t cluster_phase;  // 1 + that of barrier.cluster at which it has arrived and not waited; 0: none
};

// Of a block in its grid, a thread in its block: where the one with that number is.
inline uint3 position(unsigned number, dim3 shape) {
  return {number % shape.x, number / shape.x % shape.y, number / (shape.x * shape.y)};
}

// Without any progress for so long, all workers together, blocks are taken to be stuck; the next ones of such a launch
// sooner.
constexpr std::uint64_t kSpinsBeforeDeadlock = 1u << 14, kLeastSpins = 1u << 8;
constexpr unsigned kAtomicsBeforeYield = 64;  // then a spinning thread lets others run

// A warp operation that some lanes of its mask have reached. Disjoint masks may be open at the same time.
struct OpenOp {
  WarpOp op;
  unsigned mask, arrived;
  Site site;
  unsigned first_lane;
};

struct Warp {
  unsigned exists = 0, ended = 0, at_barrier = 0;  // masks of lanes
  std::vector<OpenOp> open;
};

// The instruction that some warps of a warpgroup have reached.
struct Warpgroup {
  OpenOp op{};
  unsigned arrived = 0, first_warp = 0;  // arrived: a mask of warps
};

// What a function leaves on the stack when it keeps its frame pointer, as checked kernels do.
struct CallFrame {
  const CallFrame* caller;
  const void* return_address;
};

class Worker {
 public:
  Worker();
  ~Worker();
  // Runs one block to its end, or until a finding stops it. Exceptions of the kernel come out here.
  void run(const Launch& launch, std::uint64_t linear_block);

  // What a kernel calls (see simt.hpp).
  int barrier(Vote vote, int predicate, Site site, const CallFrame* frame);
  std::uint64_t warp_op(WarpOp op, unsigned mask, std::uint64_t value, Site site, unsigned param, unsigned width);
  std::byte* shared_memory(std::size_t bytes, const char* type, Padding padding, Members members);
  void before_atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site);
  void before_volatile_read(const void* pc);
  void look_again(Site site);  // lets others run: what the thread waits for has not come yet
  void let_others_run(Site site, const void* pc);
  void fence(Scope scope);
  void matrix_row(const void* row, LdmatrixRegisters& registers, Site site);
  void matrix_row_written(void* row, const StmatrixRegisters& registers, Site site);
  std::uint64_t matrix_descriptor(const std::byte* tile, unsigned leading, unsigned stride, Site site);
  void launch_bounds(unsigned bound, unsigned blocks_of_sm);
  void cp_async(Copy copy);
  void cp_async_commit() { copies.commit(current); }
  void cp_async_wait(unsigned pending, Site site);
  void mark(const char* label, long value);
  void cluster_arrive(Site site);
  void cluster_wait(Site site);
  std::byte* map(const void* address, unsigned rank, Site site);  // mapa

  // An asynchronous operation that the running thread issues, for the checks; its end, when somebody knows that it is
  // complete, with the clock that who waits for it learns of (Checks::async_known). Without checks they do nothing.
  AsyncRanges::Id begin_async(AsyncOperation operation) { return begin_async(*this, std::move(operation)); }
  // The same of one whose pieces lie in the shared memory of `owner`, a block of the cluster.
  AsyncRanges::Id begin_async(Worker& owner, AsyncOperation operation);
  std::uint64_t end_async(AsyncRanges::Id id);

  // Where a thread's stack ends.
  const std::byte* stack_top(unsigned thread) const { return fibers_[thread].stack + fibers_[thread].stack_bytes; }
  // Abandons the block: its fibers never run again. Called on a fiber.
  [[noreturn]] void stop_block();
  // A finding by the running thread.
  FindingSide side(const char* what, const void* pc) const;
  FindingSide side(const std::string& what, const Thread& thread) const;
  std::string place(const void* shared_address) const;  // "shared Smem+128", "shared Smem+128 of block (1,0,0)"
  std::string coordinates() const;                      // of the block: "(1,0,0)"
  // Requests of the warp that the trace's clock does not know of yet.
  std::uint64_t requests_ahead(unsigned warp) const { return checks ? checks->pending(warp) : 0; }
  bool in_shared(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared) < shared_bytes;
  }
  bool near_shared(const void* address) const;
  [[noreturn]] void misuse(const char* kind, const std::string& what, const std::string& remedy,
                           std::vector<FindingSide> sides);

  const Launch* launch = nullptr;
  unsigned block = 0;          // linear index of the running block
  unsigned current = 0;        // linear index of the running thread
  Cluster* cluster = nullptr;  // of two blocks or more; null: none
  unsigned rank = 0;           // of the block in it
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::byte* shared = nullptr;          // the block's shared memory begins here
  std::size_t shared_bytes = 0;         // as far as it reaches; with __shared__ variables there are gaps
  const char* shared_struct = nullptr;  // what the block's kernel takes it for (type_name), its size; null: not known
  std::size_t shared_struct_bytes = 0;
  Padding shared_padding = nullptr;
  const std::byte* stack = nullptr;  // of the running thread
  std::size_t stack_bytes = 0;
  FindingLog findings;
  Copies copies;                   // of the running block
  std::vector<Products> products;  // the same, of each warpgroup
  AsyncRanges async;               // the same
  Bulk bulk{*this};
  std::uint64_t matrix_bytes = 0;  // read by wgmma from shared memory, of all blocks that this worker ran
  std::uint64_t barriers = 0;      // of all blocks that this worker ran
  std::uint64_t most_copied = 0;   // the most bytes that asynchronous copies of one block had under way
  Stuck::Look look;                // of this launch
  Tracer tracer;
  std::unique_ptr<Checks> checks;  // none in the fast build
  Observers observers;             // the checks, and who else watches

 private:
  friend class Bulk;     // whose threads wait, too
  friend class Cluster;  // the same
  static void fiber_main();
  void spin(State how, Site site, const void* pc);
  void run_next(bool ended = false);
  void choose();
  void make_ready(unsigned thread);
  void compare_calls(const CallFrame* frame);
  void met(unsigned warp);
  void complete_barrier();
  // What is wrong with a warp operation, out of the way of those with which nothing is: their stack frame is small.
  [[gnu::cold, gnu::noinline]] void judge(const Thread& thread, const Warp& warp);
  [[noreturn, gnu::cold, gnu::noinline]] void differs(const Thread& thread, const OpenOp& open);
  void shuffle(Thread& thread, const Thread* t, unsigned lanes, unsigned mask);
  void complete(Warp& warp, unsigned first_thread, const OpenOp& op);
  bool resolve_activemask();
  void join_warpgroup(unsigned warp, const OpenOp& op);
  bool run_for_warpgroup(unsigned group, const OpenOp& op);
  void let_warpgroup_go(unsigned group);
  template <class Act>
  void as_thread(unsigned thread, const Act& act);
  void issue_product(unsigned group, Site site);
  void wait_for_products(unsigned group, Site site);
  void come_to_barrier(unsigned warp, const OpenOp& op);
  bool set_registers(unsigned group, RegisterCount wanted);
  std::size_t shared_address(const std::byte* at) const;
  const std::byte* shared_at(std::size_t address) const;
  std::vector<const std::byte*> chunks(std::uint64_t descriptor, unsigned rows, bool mn_major, const char* name);
  [[noreturn]] void differs(const char* what, const Thread& thread, unsigned first);
  [[noreturn]] void barrier_zero();
  void left_under_way();
  Cluster& group();
  void exits_cluster();
  void lay_out(const Launch& launch, std::uint64_t linear_block);
  void run_threads();
  void finish();
  void explain_stall();
  bool explain_block();
  static RawFinding deadlock(const char* what, unsigned block);
  void add_waiting(RawFinding& finding) const;
  bool explain_warpgroup();
  std::string place_of(const Thread& thread) const;
  bool hopeless();

  std::byte* own_shared_ = nullptr;  // for kernels without __shared__ variables
  StackPool fibers_;
  Fiber main_;
  ReadySet ready_, spinning_;
  std::mt19937_64 random_;
  unsigned waiting_ = 0, ended_ = 0;  // threads at the barrier; threads that have ended
  std::vector<Warpgroup> warpgroups_;
  NamedBarriers named_barriers_;
  RegisterBudget budget_;
  std::unique_ptr<Cluster> alone_;  // of a block without a cluster that calls for one's barrier
  Vote vote_ = Vote::none;
  Site barrier_site_;
  unsigned barrier_first_ = 0;
  std::vector<const void*> barrier_calls_;                    // the first one's return addresses, innermost first
  std::set<std::pair<const void*, const void*>> same_calls_;  // return addresses of one line of the source
  bool barrier_divergence_seen_ = false;
  Site used_barrier_, used_zero_;  // by __syncthreads, by name
  std::uint64_t yields_without_progress_ = 0;
  bool stopped_ = false;
  std::exception_ptr error_;
};

// Told of the accesses of instrumented host code to this memory; null: nobody wants to know.
extern const DeviceMemory* host_watched;
extern void (*host_accessed)(const void* address, bool writes, const void* return_address);

const char* name_of(WarpOp op);
const char* remedy_for_missing(WarpOp op);  // lanes
std::string described(const OpenOp& op);    // "__shfl_sync with mask 0x0000ffff"
bool same_site(const Site& a, const Site& b);

}  // namespace flash::simt
