// cooperative.cpp: what a grid-wide barrier needs of the scheduler: that all blocks run at a time, each on a worker of
// its own (cudaLaunchCooperativeKernel). The barrier itself is made of atomics (sim/cuda/include/cooperative_groups.h).
// Use: through cooperative_groups::this_grid().
#include <thread>
#include <utility>

#include "sim/core/block.hpp"
#include "sim/error.hpp"

namespace flash::simt {

bool all_blocks_run() {
  return active_worker && active_worker->launch->cooperative;
}

void need_all_blocks(Site site) {
  if (all_blocks_run()) return;
  active_worker = nullptr;  // from here on accesses are ours, not the kernel's
  refuse("the launch of a kernel that calls this_grid().sync()", "an ordinary one, at " + site_of(site),
         "cudaLaunchCooperativeKernel", "launch it so; all blocks run at a time then");
}

void let_other_blocks_run() {
  std::this_thread::yield();
}

}  // namespace flash::simt
