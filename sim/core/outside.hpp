// outside.hpp: for as long as one lives, accesses and allocations of this thread are the simulator's own, not the
// kernel's. The kernel's file has functions of the C++ library, too, and the linker may take these: without this, what
// the simulator does by them would count as the kernel's, and their memory would be the kernel's heap.
// Use: const Outside outside; or, in a function of simt.hpp, Entered()->…
#pragma once
#include <utility>

namespace flash::simt {

class Worker;

// The worker whose block the calling OS thread runs; null outside of kernels and inside the simulator's own code,
// so that an instrumented function of the C++ library that the simulator calls is not taken for the kernel's.
extern constinit thread_local Worker* active_worker;
// The worker whose block the calling OS thread runs, inside the simulator's own code too.
extern constinit thread_local Worker* running_worker;

class Outside {
 public:
  Outside() : worker_(std::exchange(active_worker, nullptr)) {}
  ~Outside() { active_worker = worker_; }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;
  // The worker whose fiber made the call; null: host code did, or the simulator itself.
  Worker* worker() const { return worker_; }

 private:
  Worker* worker_;
};

// The same in a function that only kernels may call.
class Entered : public Outside {
 public:
  Entered();
  Worker* operator->() const { return worker(); }
};

}  // namespace flash::simt
