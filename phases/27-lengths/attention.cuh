// Phase 27: sequences with lengths of their own, on Hopper, by the kernels of phases 19 and 24. New since 26: a kernel
// in front (sequences.cuh), the variant (lengths.cuh) and boxes that end where a sequence does (boxes.cuh).
// Run it: ./flash tour 27     Test it: ./flash test 27
#pragma once
#include "phases/19-beyond/attention.cuh"
#include "phases/24-backward-fused/attention.cuh"
#include "phases/26-windows/attention.cuh"
#include "phases/27-lengths/boxes.cuh"
#include "phases/27-lengths/phase.hpp"

namespace flash::phase27::inline FLASH_MACHINE {

// #region launch
using Variant = OfSequences<Windowed<Grouped<int>>>;

struct Attention : phase19::Attention {
  static void check(const AnyProblem& p) { check_entries(p); }
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    // Nobody draws from its list of tiles of keys.
    with_sequences<int>(p, Br, 128, false, p.workspace[1],
                        [](const DeviceProblem<T>& all) { phase19::Attention::launch<T, D, Br, Bc, Variant>(all); });
  }
};
struct Gradients : phase24::Gradients {
  static void check(const AnyProblem& p) { check_entries(p); }
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    if (p.Q.rows + p.K.rows == 0) return;
    with_sequences<int>(p, phase20::row_multiple, Bc, true, p.workspace[6],
                        [](const DeviceProblem<T>& all) { launch_fused<T, D, Br, Bc, Variant>(all); });
  }
};
// #endregion

}  // namespace flash::phase27::inline FLASH_MACHINE
