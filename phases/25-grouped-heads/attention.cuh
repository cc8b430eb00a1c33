// Phase 25: grouped heads, on Hopper: the kernels of phases 19 and 24, which ask where a head's keys lie. New: the
// answer, in grouped.cuh; mma.cuh gives it to the kernels of phases 13 and 20, for all GPUs with mma.sync.
// Run it: ./flash tour 25     Test it: ./flash test 25
#pragma once
#include "phases/19-beyond/attention.cuh"
#include "phases/24-backward-fused/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/25-grouped-heads/phase.hpp"

namespace flash::phase25::inline FLASH_MACHINE {

// #region launch
struct Attention : phase19::Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase19::Attention::launch<T, D, Br, Bc, Grouped<int>>(p);
  }
};
struct Gradients : phase24::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    launch_fused<T, D, Br, Bc, Grouped<int>>(p);
  }
};
// #endregion

}  // namespace flash::phase25::inline FLASH_MACHINE
