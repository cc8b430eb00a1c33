// Phase 29m: dropout by mma.sync: phases 13's and 20's kernels, which leave out of P what Philox says. attention.cuh is
// the same for Hopper.
// Run it: ./flash tour 29m     Test it: ./flash test 29
#pragma once
#include "phases/13-instruction-diet/attention.cuh"
#include "phases/20-backward-tensor-cores/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/29-dropout/dropped.cuh"
#include "phases/29-dropout/phase.hpp"

namespace flash::phase29m::inline FLASH_MACHINE {

// #region launch-mma
using Variant = Dropped<Grouped<std::int64_t>>;

struct Attention : phase13::Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase13::Attention::launch<T, D, Br, Bc, Variant>(p);
  }
};
struct Gradients : phase20::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase20::Gradients::launch<T, D, Br, Bc, Variant>(p);
  }
};
// #endregion

}  // namespace flash::phase29m::inline FLASH_MACHINE
