// Phase 29: dropout, on Hopper: kernels of phases 19 and 24, which leave out of P what Philox says. New: the generator
// (philox.cuh), who calls it (flags.cuh), what is done with it (dropped.cuh). mma.cuh: the same by mma.sync.
// Run it: ./flash tour 29     Test it: ./flash test 29
#pragma once
#include "phases/19-beyond/attention.cuh"
#include "phases/24-backward-fused/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/29-dropout/dropped.cuh"
#include "phases/29-dropout/phase.hpp"

namespace flash::phase29::inline FLASH_MACHINE {

// #region launch
using Variant = Dropped<Grouped<int>>;

struct Attention : phase19::Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase19::Attention::launch<T, D, Br, Bc, Variant>(p);
  }
};
struct Gradients : phase24::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    launch_fused<T, D, Br, Bc, Variant>(p);
  }
};
// #endregion

}  // namespace flash::phase29::inline FLASH_MACHINE
