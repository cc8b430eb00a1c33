// outside.hpp: for as long as one lives, accesses and allocations of this thread are the simulator's own, not the
// kernel's. The kernel's file has functions of the C++ library, too, and the linker may take these: without this, what
// the simulator does by them would count as the kernel's, and their memory would be the kernel's heap.
// Use: const Outside outside;
#pragma once
#include <utility>

#include "sim/core/block.hpp"

namespace flash::simt {

class Outside {
 public:
  Outside() : worker_(std::exchange(active_worker, nullptr)) {}
  ~Outside() { active_worker = worker_; }

 private:
  Worker* worker_;
};

}  // namespace flash::simt
