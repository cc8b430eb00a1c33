// observer.hpp: what the scheduler tells whoever watches its blocks: when threads synchronise, switch, use atomics, or
// begin and wait for asynchronous operations. An observer overrides what it wants to know of.
// The checked machine has one that is asked, too: the Checker (sim/checks). A recording (sim/report) brings a Recorder.
// The fast machine has none. sim/core knows no more of them than this.
// Use: for (Observer* observer : observers) observer->fence(scope);  worker.checks answers.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/access.hpp"
#include "sim/core/members.hpp"
#include "sim/core/simt.hpp"
#include "sim/core/spot.hpp"

namespace flash::simt {

struct AsyncOperation;
struct Copy;
struct Product;
class TensorBox;

// A finished request of a warp to the block's shared memory; lanes without an address take no part.
struct SharedRequest {
  unsigned warp;
  Access access;
  unsigned bytes;  // of each lane
  std::array<std::uintptr_t, 32> addresses;
  std::uint64_t wavefronts, ideal;
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"  // they have names for the reader
class Observer {
 public:
  virtual ~Observer() = default;

  // ---- blocks, warps and threads -----------------------------------------------------------------------------------

  virtual void begin_block() {}
  virtual void end_block(bool regularly) {}  // else a finding has stopped it
  virtual void switched() {}                 // another thread runs from here on
  virtual void thread_ends() {}              // the running one

  // All lanes of the warp are at one place, or have exited: their accesses up to here are grouped into requests.
  virtual void converge(unsigned warp) {}
  // All that have not exited are at __syncthreads, the site is a first one's; or all have exited.
  virtual void warp_at_barrier(unsigned warp, Site site) {}
  virtual void warp_ends(unsigned warp) {}
  // All threads that have not exited are at the barrier, the site is the first one's.
  virtual void block_barrier(bool some_exited, Site site) {}
  virtual void warp_sync(unsigned warp, unsigned lanes) {}
  // All lanes are at bar.sync, or (`waits` is false) at bar.arrive; at another instruction of a warp that waits.
  virtual void warp_at_named_barrier(unsigned warp, const char* instruction, int barrier, bool waits, Site site) {}
  virtual void warp_waits(unsigned warp, const char* instruction, Site site) {}

  // What the kernel says: what its shared memory is, marks, numbers to show.
  virtual void shared_struct(Members members) {}
  virtual void mark(const char* label, long value) {}
  virtual void value(const char* name, long row, float value) {}

  // ---- memory ------------------------------------------------------------------------------------------------------

  // `reads`: the old value matters, unlike to atomicExch.
  virtual void atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site) {}
  // The atomic that runs adds floating-point numbers: to as many elements of so many bytes (2, 4 or 8) as there are.
  // Called after atomic(), before the values change. Asynchronous additions: AsyncOperation::adds.
  virtual void adds(const void* address, std::size_t bytes, unsigned element, Site site) {}
  virtual void after_atomic(const void* address) {}
  virtual void counts(Counting how, unsigned number) {}  // the next atomic does
  virtual void fence(Scope scope) {}
  virtual void matrix_row(const void* row, Site site) {}    // of ldmatrix
  virtual void matrix_row_written(void* row, Site site) {}  // of stmatrix

  // The checks tell the others, once they know it, where the running thread's accesses are: in which array of
  // DeviceMemory, in the shared memory of which block of the cluster; and which of a warp's make one request.
  virtual void global_access(std::size_t array, std::size_t offset, unsigned bytes, Access access, Spot spot) {}
  virtual void shared_access(unsigned rank, std::size_t offset, unsigned bytes, Access access, Spot spot) {}
  virtual void request(const SharedRequest& request) {}

  // ---- cp.async ----------------------------------------------------------------------------------------------------

  virtual void copy_begins(const Copy& copy) {}
  virtual void copy_ends(const Copy& copy, Site wait) {}  // for its thread, which runs

  // ---- where threads meet, other than __syncthreads ----------------------------------------------------------------

  // What threads hand over at mbarriers, named barriers and the cluster's barrier. The running thread releases;
  // when the object completes, who acquires it (from then until it completes again) knows what was released before.
  virtual void releases(const void* object) {}
  virtual void releases_reads(const void* object) {}  // what it stored is not handed over
  virtual void completes(const void* object) {}
  // `far`: of an mbarrier, what other blocks' threads have released, too.
  virtual void acquires(const void* object, unsigned thread, bool far = false) {}
  // The same of a thread that has released, too, and has waited since.
  virtual void learns_all(const void* object, unsigned thread) {}

  // The running thread arrives, in that phase of an mbarrier, and expects so many bytes; at the cluster's barrier.
  virtual void arrives(const void* mbarrier, std::uint64_t phase, bool expects, unsigned bytes, Site site) {}
  virtual void arrives_at_cluster(const void* barrier, Site site) {}
  // It waits, or looks, until so many phases are complete, of an mbarrier or of the cluster's barrier.
  virtual void waits_for(const void* barrier, std::uint64_t phases, Site site) {}

  // The running thread makes an mbarrier of these 8 bytes; uses the one that they are; ends it, and all uses must be
  // in order with that.
  virtual void mbarrier_begins(const void* barrier, unsigned arrivals, Site site) {}
  virtual void mbarrier_used(const void* barrier, const char* instruction, Site site) {}
  virtual void mbarrier_ends(const void* barrier, Site site) {}

  // ---- TMA ---------------------------------------------------------------------------------------------------------

  // The running thread issues a load. `counted`: its bytes of global memory are, by the same load to another block.
  virtual void load_begins(const TensorBox& box, bool counted, const void* mbarrier, Site site) {}
  virtual void load_ends(const TensorBox& box, const void* mbarrier, Site site) {}  // its bytes are there
  // A store, or a reduction, which `adds`; its thread knows that the tile was read.
  virtual void store_begins(const TensorBox& box, bool adds, Site site) {}
  virtual void store_was_read(const TensorBox& box) {}
  // A copy is about to complete on the mbarrier; `fenced`: fence_mbarrier_init came behind its making.
  virtual void completes_on(const void* barrier, bool fenced, Site copy) {}
  // What the running thread knows of is seen by the async proxy from here on, too.
  virtual void fence_proxy() {}

  // ---- wgmma -------------------------------------------------------------------------------------------------------

  // A product of the warpgroup that begins with this warp is issued; its group has been waited for.
  virtual void product_issued(unsigned warp, const Product& product, Site site) {}
  virtual void product_waited_for(unsigned warp, const Product& product, Site wait) {}
  // A thread's registers: a fence; a product is issued; a wait was for it, and (`last`) for all products in these
  // accumulators; a wait that left so many groups named an array.
  virtual void registers_fenced(unsigned thread) {}
  virtual void product_begins(unsigned thread, const WgmmaOperands& operands, Site site) {}
  virtual void product_ends(unsigned thread, const Product& product, bool last) {}
  virtual void registers_named(unsigned thread, const void* begin, std::size_t bytes, unsigned left, Site site) {}
};
#pragma GCC diagnostic pop

// Told one after the other.
using Observers = std::vector<Observer*>;

// An observer that is asked, too: a worker has one at most.
class Checks : public Observer {
 public:
  // Requests of the warp since it last met.
  virtual std::size_t pending(unsigned warp) = 0;

  // An asynchronous operation (sim/core/async.hpp): the running thread has issued it; its pieces are judged as that
  // thread's accesses. Then somebody may know that it is complete: it is an access of the thread's companion that has
  // just ended, and who knows of the clock that comes back knows of it.
  virtual std::uint64_t async_begins(const AsyncOperation& operation) = 0;  // AsyncOperation::begun
  virtual std::uint64_t async_ends(const AsyncOperation& operation) = 0;
  // So many threads, from `first` on, have waited for operations that `issuer` issued, the last of which ended at that
  // clock; `in_order`: for such ones. Or: who acquires the object, from here on, has.
  virtual void async_known(unsigned first, unsigned threads, unsigned issuer, std::uint64_t clock,
                           bool in_order = false) = 0;
  // `block`: whose clock it is.
  virtual void async_handed_over(const void* object, unsigned block, unsigned issuer, std::uint64_t clock) = 0;
  // The running thread takes part in an operation that another thread of its warpgroup has just begun: what the
  // operation reads must be in order with it, too.
  virtual void async_shared(const AsyncOperation& operation) = 0;

  // Does it lie in an array of the device?
  virtual bool in_array(const void* address) const = 0;
  // Has the operation that began last read memory that nobody had written? Then the one that writes begins, too, and
  // for each run of bytes this says where they come from.
  virtual bool read_unwritten() const = 0;
  virtual void carries(const AsyncOperation& copy, const std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // The product that was issued last has its accumulators; read_unwritten() is about its tiles.
  virtual void product_adds(const Product& product) = 0;

  // The running thread arrives at an mbarrier of another block, or issues a copy that completes on it. False: it does
  // not know that it is one.
  virtual bool far_mbarrier(const void* barrier, const char* instruction, bool arrives, Site site) = 0;
};

}  // namespace flash::simt
