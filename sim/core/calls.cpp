// calls.cpp: what kernels call seldom: traps, clocks, pauses, and what a grid-wide barrier needs of the scheduler: that
// all blocks run at a time, each on a worker of its own (cudaLaunchCooperativeKernel). The barrier itself is made of
// atomics: sim/cuda/include/cooperative_groups.h. Use: see sim/core/simt.hpp.
#include <chrono>
#include <thread>

#include "sim/core/block.hpp"
#include "sim/core/code_names.hpp"
#include "sim/error.hpp"

namespace flash::simt {

void trap(Site site) {
  const Outside outside;
  Worker* const worker = outside.worker();
  if (!worker) throw Error("__trap() was called outside of a kernel");
  worker->threads[worker->current].site = site;
  worker->findings.add({"trap",
                        "a thread called __trap()",
                        "see why: the kernel asks for it where it must not come",
                        {worker->side("calls", worker->threads[worker->current])},
                        worker->block});
  worker->stop_block();
}

void failed_assertion(const char* expression, const void* return_address) {
  const Outside outside;
  Worker* const worker = outside.worker();
  worker->findings.add({"assertion",
                        std::string("`") + expression + "` is false",
                        "make it true",
                        {worker->side("asserts", return_address)},
                        worker->block});
  worker->stop_block();
}

long long cycles() {
#if defined(__x86_64__)
  return static_cast<long long>(__builtin_ia32_rdtsc());
#else
  return std::chrono::steady_clock::now().time_since_epoch().count();
#endif
}

void pause(Site site) {
  const Outside outside;
  if (Worker* const worker = outside.worker()) worker->let_others_run(site, nullptr);
}

bool all_blocks_run() {
  return active_worker && active_worker->launch->cooperative;
}

void need_all_blocks(Site site) {
  if (all_blocks_run()) return;
  active_worker = nullptr;  // from here on accesses are ours, not the kernel's
  refuse("the launch of a kernel that calls this_grid().sync()", "an ordinary one, at " + site_of(site),
         "cudaLaunchCooperativeKernel", "launch it so; all blocks run at a time then");
}

// A poll that waits for another block's worker: one is as good as many.
void let_other_blocks_run() {
  if (Worker* const worker = active_worker) worker->threads[worker->current].atomics_in_a_row = kAtomicsBeforeYield;
  std::this_thread::yield();
}

}  // namespace flash::simt
