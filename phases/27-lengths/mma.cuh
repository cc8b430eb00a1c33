// Phase 27m: sequences with lengths of their own by mma.sync: the kernels of phases 13 and 20. attention.cuh is the
// same for Hopper.
// Run it: ./flash tour 27m     Test it: ./flash test 27
#pragma once
#include "phases/13-instruction-diet/attention.cuh"
#include "phases/20-backward-tensor-cores/attention.cuh"
#include "phases/26-windows/mma.cuh"
#include "phases/27-lengths/lengths.cuh"
#include "phases/27-lengths/phase.hpp"

namespace flash::phase27m::inline FLASH_MACHINE {

// #region launch-mma
using Variant = OfSequences<Windowed<Grouped<std::int64_t>>>;

struct Attention : phase13::Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    // Nobody draws from its list of tiles of keys.
    with_sequences<std::int64_t>(p, Br, 128, false, p.workspace[0], [](const DeviceProblem<T>& all) {
      phase13::Attention::launch<T, D, Br, Bc, Variant>(all);
    });
  }
};
struct Gradients : phase20::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    if (p.Q.rows + p.K.rows == 0) return;
    with_sequences<std::int64_t>(p, phase20::row_multiple, Bc, true, p.workspace[6], [](const DeviceProblem<T>& all) {
      phase20::Gradients::launch<T, D, Br, Bc, Variant>(all);
    });
  }
};
// #endregion

}  // namespace flash::phase27m::inline FLASH_MACHINE
