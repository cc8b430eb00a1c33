// simt.hpp: the few functions and variables through which a compiled kernel talks to the simulator. dialect.hpp wraps
// them in CUDA's names; sim/core implements them. Plain types only: fast and checked
// kernels share them, so nothing here may be a function that both would compile.
// Use: not directly; include "gpu/kernel.cuh" in a kernel file and "sim/machine.hpp" elsewhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "sim/order.hpp"

namespace flash::simt {

using Site = std::source_location;  // as a default argument it names the caller's line

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  __attribute__((always_inline)) constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
      : x(x_), y(y_), z(z_) {}
  __attribute__((always_inline)) constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

// The running thread's built-in variables; the scheduler sets them at each switch.
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

// What the running thread's block calculated since its launch began (checked build).
struct Tally {
  std::uint64_t flops, exps, tensor_flops;  // tensor_flops: of mma and wgmma, flops: of all else
};
extern constinit thread_local Tally tally;

// The block's shared memory as a struct of that size, which `type` names: "... [with S = flash::on_sim::Smem<float>]".
// Refuses a struct that is larger than what the launch gives.
struct Member;
std::byte* shared_memory(std::size_t bytes, const char* type, void (*padding)(unsigned char*),
                         std::size_t (*members)(Member*));

// Refuses a launch with more threads in a block than the kernel's __launch_bounds__ allows. Where they
// say how many blocks an SM is to run at a time, the compiler knows how many registers a thread may have.
void check_launch_bounds(unsigned threads, unsigned blocks = 0, unsigned clusters = 0);

enum class Vote { none, count, all, any };
// Waits for all threads of the block; the result is the vote over the predicates.
int barrier(Vote vote, int predicate, Site site);

enum class WarpOp : std::uint8_t {
  sync,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
  ballot,
  any,
  all,
  match_any,
  activemask,
  elect,
  reduce_add,
  reduce_min_signed,
  reduce_max_signed,
  reduce_min,
  reduce_max,
  reduce_and,
  reduce_or,
  reduce_xor,
  mma,  // from here on: of all 32 lanes, .aligned; the operand is the address of what a lane gives
  ldmatrix,
  stmatrix,
  bar_sync,
  bar_arrive,
  wgmma,  // from here on: of the four warps of a warpgroup
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  setmaxnreg
};
constexpr bool is_aligned(WarpOp op) {
  return op >= WarpOp::mma;
}
constexpr bool is_of_warpgroup(WarpOp op) {
  return op >= WarpOp::wgmma;
}
// One lane's operands of mma.m16n8k16. Which elements they are: PTX ISA, "Matrix Fragments for mma.m16n8k16".
struct MmaRegisters {
  const std::uint32_t* a;  // [4], two elements each
  const std::uint32_t* b;  // [2]
  const float* c;          // [4]
  float* d;                // [4], may be c
};
// Of ldmatrix: eight elements of 16 bits read, four registers of two elements written.
struct LdmatrixRegisters {
  std::uint16_t row[8];
  std::uint16_t elements[4][2];
};
// Of stmatrix: four registers of two elements given, eight elements that the lane writes.
struct StmatrixRegisters {
  const std::uint32_t* registers;  // [4]
  std::uint16_t row[8];
};
// Of bar.sync and bar.arrive.
struct NamedBarrierOperands {
  int barrier, threads;
};
// A thread's part of wgmma.mma_async.m64nNk16. Which elements its registers are: sim/dialect/warpgroup.hpp.
struct WgmmaOperands {
  float* d;                // [columns / 2]
  const std::uint32_t* a;  // [4], two elements each; null: A is where its descriptor says
  std::uint64_t a_descriptor, b_descriptor;
  unsigned columns;                                   // N
  bool accumulate, a_mn_major, b_mn_major, bfloat16;  // else D = A B; else K-major; else half
};
// Of wgmma.wait_group: the groups that may be left, and the registers that the caller uses from here on.
struct WgmmaWait {
  struct Registers {
    const void* begin;
    unsigned bytes;
  };
  unsigned pending;
  const Registers* done;
  unsigned count;
};
struct RegisterCount {
  unsigned registers;
  bool increases;
};
// Waits for the lanes of the mask, then gives this lane its result.
std::uint64_t warp_op(WarpOp op, unsigned mask, std::uint64_t value, Site site, unsigned param = 0,
                      unsigned width = 32);

// Reads a lane's row of ldmatrix; writes one of stmatrix.
void ldmatrix_row(const void* row, LdmatrixRegisters& registers, Site site);
void stmatrix_row(void* row, const StmatrixRegisters& registers, Site site);

// The 64 bits that tell wgmma where a matrix lies; sim/core/warpgroup.hpp.
std::uint64_t matrix_descriptor(const void* tile, unsigned leading_bytes, unsigned stride_bytes, Site site);

// Asynchronous copies from global to shared memory; sim/core/copies.hpp.
void cp_async(void* shared, const void* global, unsigned bytes, unsigned source_bytes, Site site);
void cp_async_commit();
void cp_async_wait(unsigned pending, Site site);
// Commits this thread's copies: they are done when it next arrives at an mbarrier (cp.async.mbarrier.arrive).
void cp_async_for_mbarrier();

// Mbarriers and copies of tiles (TMA); sim/core/mbarrier.hpp, bulk.hpp. `expects`: so many bytes, besides arriving.
struct TensorMap;
void mbarrier_init(std::uint64_t* barrier, unsigned arrivals, Site site);
void fence_mbarrier_init();
void mbarrier_arrive(std::uint64_t* barrier, bool expects, unsigned bytes, Site site);
void mbarrier_wait(std::uint64_t* barrier, unsigned parity, Site site);
// The same of the mbarrier of the cluster's block of that rank; a wait that knows of other blocks' arrivals, too.
void mbarrier_arrive_cluster(std::uint64_t* barrier, unsigned rank, bool relaxed, Site site);
void mbarrier_wait_cluster(std::uint64_t* barrier, unsigned parity, Site site);
unsigned mbarrier_parity(const std::uint64_t* barrier);  // of its current phase
bool mbarrier_test_wait(std::uint64_t* barrier, unsigned parity, const char* instruction, Site site);
void mbarrier_inval(std::uint64_t* barrier, Site site);
void bulk_load(void* shared, const void* global, unsigned bytes, std::uint64_t* barrier, Site site);
void bulk_prefetch(const void* global, unsigned bytes, Site site);
void bulk_store(void* global, const void* shared, unsigned bytes, bool adds, Site site);  // adds: floats
void tensor_load(void* tile, const TensorMap* map, std::uint64_t* barrier, const int* coordinates, unsigned rank,
                 Site site);
void tensor_multicast(void* tile, const TensorMap* map, std::uint64_t* barrier, const int* coordinates, unsigned rank,
                      unsigned blocks, Site site);
void bulk_send(void* to, const void* from, unsigned bytes, std::uint64_t* barrier, Site site);
void tensor_store(const TensorMap* map, const void* tile, const int* coordinates, unsigned rank, Site site);
void tensor_prefetch(const TensorMap* map, unsigned rank, Site site);
void bulk_commit();
void bulk_wait(unsigned pending, bool read);
void fence_proxy_async();

// Whom an atomic or a fence concerns: the threads of the block, or all of the device. The system is taken for the same.
enum class Scope : std::uint8_t { block, device };
// Called before each atomic: checks it (checked build), publishes what a fence released, lets others run when a thread
// spins; and after it (checked build): takes over what others had published before this atomic read their value.
// `reads`: the old value matters, as it does not to atomicExch.
void before_atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site);
void after_atomic(const void* address);
// Which atomic comes next: one that counts up for wait_at_least, or that wait, and by how much or for how much.
enum class Counting : std::uint8_t { no, adds, waits };
void counts(Counting how, unsigned number);
// Called between the two where the atomic adds floating-point numbers, to elements of so many bytes (checked build).
void adds(const void* address, std::size_t bytes, unsigned element, Site site);
void fence(Scope scope);
// Lets others run until the number is at least that large; neither checked nor counted.
void wait_at_least(const unsigned* count, unsigned least, Site site);
// Is it an address of the running block's shared memory?
bool is_shared(const void* address);
// An atomic or volatile store by a thread of this worker changed memory: who spins may go on, so nobody is stuck.
extern constinit thread_local bool memory_changed;
// Replaces *p by change(*p) in one step, whatever other workers do to it meanwhile; the old value.
template <class T, class Change>
[[gnu::always_inline]] inline T replace(T* p, const Change& change) {
  using Small = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, Small>;
  Bits* word = reinterpret_cast<Bits*>(p);
  Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
  Bits changed;
  do changed = __builtin_bit_cast(Bits, static_cast<T>(change(__builtin_bit_cast(T, old))));
  while (!__atomic_compare_exchange_n(word, &old, changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  if (changed != old) memory_changed = true;
  return __builtin_bit_cast(T, old);
}

// __trap and a failed assert: a finding, and the block ends. The host's cycles. Lets the block's other threads run.
[[noreturn]] void trap(Site site);
[[noreturn]] void failed_assertion(const char* expression, const void* return_address);
long long cycles();
void pause(Site site);

// Clusters of blocks; sim/core/cluster.hpp. Without one: rank 0 of 1. map_shared: mapa.
unsigned cluster_rank();
unsigned cluster_size();
dim3 cluster_shape();
void barrier_cluster_arrive(Site site);
void barrier_cluster_wait(Site site);
void* map_shared(const void* address, unsigned rank, Site site);
// The kernel has __cluster_dims__(x, y, z). The launch begins once more if it did not know.
void check_cluster_dims(unsigned x, unsigned y = 1, unsigned z = 1);

// Begins a named region of this thread's warp in the trace.
void mark(const char* label, long value);
// Shows a number of the running thread in the recording.
void show(const char* name, long row, float value);

// Of a grid-wide barrier: do all blocks run at a time? Throws when not; gives up the processor for a moment.
bool all_blocks_run();
void need_all_blocks(Site site);
void let_other_blocks_run();

class SharedLayout;
class Stuck;

// Thrown by a kernel's first statement: it is to be launched in clusters of this shape.
struct NeedsCluster {
  dim3 cluster;
};

// One kernel launch, as all workers see it.
struct Launch {
  void (*invoke)(const void* arguments);  // calls the kernel with its arguments
  const void* arguments;
  std::size_t argument_bytes;
  const void* kernel;       // the kernel's address; null where the launch leaves it to the compiler which one it is
  const char* kernel_name;  // as the launch writes it
  dim3 grid, block;
  std::size_t shared_bytes;
  Order order;
  Completion completion;
  std::uint64_t seed;
  bool trace;
  std::size_t workers;         // how many blocks run at a time
  Stuck* stuck;                // what they know of one another
  bool cooperative;            // all blocks must run at a time: cudaLaunchCooperativeKernel
  const SharedLayout* layout;  // of the kernel's __shared__ variables; null: it has none
  bool deterministic = false;  // atomic additions of floating-point numbers are to have a fixed order
  dim3 cluster;                // blocks of a cluster
  // Of a program with streams: its number, and those of earlier launches that need not be over; whether all earlier
  // ones are, for whoever comes later, too.
  std::uint64_t number = 0;
  const std::uint64_t* beside = nullptr;
  std::size_t beside_count = 0;
  bool all_over = true;

  unsigned threads() const { return block.x * block.y * block.z; }
  std::uint64_t blocks() const { return std::uint64_t{grid.x} * grid.y * grid.z; }
  unsigned cluster_blocks() const { return cluster.x * cluster.y * cluster.z; }
  // The linear index of the block that has this rank in a cluster, counted as blocks are.
  std::uint64_t block_of(std::uint64_t index, unsigned rank) const {
    const std::uint64_t wide = grid.x / cluster.x, high = grid.y / cluster.y;
    const std::uint64_t x = index % wide * cluster.x + rank % cluster.x;
    const std::uint64_t y = index / wide % high * cluster.y + rank / cluster.x % cluster.y;
    const std::uint64_t z = index / (wide * high) * cluster.z + rank / (cluster.x * cluster.y);
    return x + grid.x * (y + grid.y * z);
  }
};

}  // namespace flash::simt
