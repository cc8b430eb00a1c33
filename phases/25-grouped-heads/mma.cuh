// Phase 25m: grouped heads by mma.sync: phases 13's and 20's kernels, which ask where a head's keys lie.
// attention.cuh is the same for Hopper.
// Run it: ./flash tour 25m     Test it: ./flash test 25
#pragma once
#include "phases/13-instruction-diet/attention.cuh"
#include "phases/20-backward-tensor-cores/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/25-grouped-heads/phase.hpp"

namespace flash::phase25m::inline FLASH_MACHINE {

// #region launch-mma
struct Attention : phase13::Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase13::Attention::launch<T, D, Br, Bc, Grouped<std::int64_t>>(p);
  }
};
struct Gradients : phase20::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase20::Gradients::launch<T, D, Br, Bc, Grouped<std::int64_t>>(p);
  }
};
// #endregion

}  // namespace flash::phase25m::inline FLASH_MACHINE
