// observer.hpp: what the scheduler tells whoever watches its blocks: when threads synchronise, switch, or use atomics.
// The checked machine's Checker (sim/checks) watches; the fast machine has none. sim/core knows no more than this.
// Use: worker.observer = std::make_unique<Checker>(worker, shadow);
#pragma once
#include <cstddef>
#include <cstdint>

#include "sim/core/simt.hpp"

namespace flash::simt {

struct AsyncOperation;
struct Copy;
struct Product;

class Observer {
 public:
  virtual ~Observer() = default;

  virtual void begin_block() = 0;
  virtual void end_block(bool regularly) = 0;  // else a finding has stopped it
  virtual void switched() = 0;  // another thread runs from here on

  // All threads that have not exited are at the barrier, the site is the first one's.
  virtual void block_barrier(bool some_exited, Site site) = 0;
  virtual void warp_sync(unsigned warp, unsigned lanes) = 0;
  virtual void thread_ends() = 0;  // the running one
  // All lanes of the warp are at one place, or have exited: their accesses up to here are grouped into requests.
  virtual void converge(unsigned warp) = 0;
  // Requests of the warp since it last met.
  virtual std::size_t pending(unsigned warp) const = 0;

  // `reads`: the old value matters, unlike to atomicExch.
  virtual void atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site) = 0;
  // The atomic that runs adds floating-point numbers: to as many elements of so many bytes (2, 4 or 8) as there are.
  // Called after atomic(), before the values change. Asynchronous additions: AsyncOperation::adds.
  virtual void adds(const void* address, std::size_t bytes, unsigned element, Site site) = 0;
  virtual void after_atomic(const void* address) = 0;
  virtual void fence(Scope scope) = 0;

  virtual void matrix_row(const void* row, Site site) = 0;    // of ldmatrix
  virtual void matrix_row_written(void* row, Site site) = 0;  // of stmatrix
  virtual void copy_begins(const Copy& copy) = 0;
  virtual void copy_ends(const Copy& copy) = 0;  // for its thread, which runs

  // An asynchronous operation (sim/core/async.hpp): the running thread has issued it; its pieces are judged as that
  // thread's accesses. Then somebody may know that it is complete: it is an access of the thread's companion that has
  // just ended, and who knows of the clock that comes back knows of it.
  virtual std::uint64_t async_begins(const AsyncOperation& operation) = 0;  // AsyncOperation::begun
  virtual std::uint64_t async_ends(const AsyncOperation& operation) = 0;
  // Has the operation that began last read memory that nobody had written? Then the one that writes begins, too, and
  // for each run of bytes this says where they come from.
  virtual bool read_unwritten() const = 0;
  virtual void carries(const AsyncOperation& copy, const std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // So many threads, from `first` on, have waited for operations that `issuer` issued, the last of which ended at that
  // clock; `in_order`: for such ones. Or: who acquires the object, from here on, has.
  virtual void async_known(unsigned first, unsigned threads, unsigned issuer, std::uint64_t clock,
                           bool in_order = false) = 0;
  // `block`: whose clock it is.
  virtual void async_handed_over(const void* object, unsigned block, unsigned issuer, std::uint64_t clock) = 0;

  // What threads hand over at objects other than __syncthreads: mbarriers, named barriers. The running thread releases;
  // when the object completes, who acquires it (from then until it completes again) knows what was released before.
  virtual void releases(const void* object) = 0;
  virtual void completes(const void* object) = 0;
  // `far`: of an mbarrier, what other blocks' threads have released, too.
  virtual void acquires(const void* object, unsigned thread, bool far = false) = 0;
  // The same of a thread that has released, too, and has waited since.
  virtual void learns_all(const void* object, unsigned thread) = 0;
  // The running thread makes an mbarrier of these 8 bytes, or uses the one that they are.
  virtual void mbarrier(const void* barrier, const char* instruction, bool makes, Site site) = 0;
  // The running thread arrives at an mbarrier of another block, or issues a copy that completes on it. False: it does
  // not know that it is one.
  virtual bool far_mbarrier(const void* barrier, const char* instruction, bool arrives, Site site) = 0;
  // The running thread ends it: all uses must be in order with that.
  virtual void mbarrier_ends(const void* barrier, Site site) = 0;
  // A copy is about to complete on it; `fenced`: fence_mbarrier_init came behind its making.
  virtual void completes_on(const void* barrier, bool fenced, Site copy) = 0;
  // What the running thread knows of is seen by the async proxy from here on, too.
  virtual void fence_proxy() = 0;

  // The running thread takes part in an operation that another thread of its warpgroup has just begun: what the
  // operation reads must be in order with it, too.
  virtual void async_shared(const AsyncOperation& operation) = 0;

  // A thread's registers and wgmma: a fence; it is issued; a wait was for it, and (`last`) for all products in these
  // accumulators; a wait that left so many groups named an array.
  virtual void registers_fenced(unsigned thread) = 0;
  virtual void product_begins(unsigned thread, const WgmmaOperands& operands, Site site) = 0;
  // The same product has its accumulators; read_unwritten() is about its tiles.
  virtual void product_adds(const Product& product) = 0;
  virtual void product_ends(unsigned thread, const Product& product, bool last) = 0;
  virtual void registers_named(unsigned thread, const void* begin, std::size_t bytes, unsigned left, Site site) = 0;
};

}  // namespace flash::simt
