// Phase 28: modified scores, on Hopper: the kernels of phases 19 and 24, which hand S to a modifier. New: the hook, in
// modified.cuh; what is given, in modifiers.cuh, quick.cuh and combined.cuh; gradients of bias and sinks, in
// gradients.cuh. mma.cuh gives all that to the kernels of phases 13 and 20.
// Run it: ./flash tour 28     Test it: ./flash test 28
#pragma once
#include "phases/19-beyond/attention.cuh"
#include "phases/24-backward-fused/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/28-modifiers/gradients.cuh"
#include "phases/28-modifiers/phase.hpp"

namespace flash::phase28::inline FLASH_MACHINE {

// #region launch
using Base = Grouped<int>;  // what the phase before gives

struct Attention : phase19::Attention {
  static Blocks preferred(const AnyProblem& p) {
    const int D = features.padded(p.widest());
    return D == 64 ? Blocks{192, 128} : D == 128 ? Blocks{128, 128} : Blocks{128, 80};
  }
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    with_modifier<D>(p, [&]<class Modifier>(const DeviceProblem<T>& scored) {
      // Phase 18's kernel has no registers for arrays: where others are asked for, phase 19's own has D = 128, too.
      if constexpr (HasLean<Modifier>)
        phase19::Attention::launch<T, D, Br, Bc, Modified<Base, Modifier>>(scored);
      else
        phase19::Attention::launch_here<T, D, Br, Bc, Modified<Base, Modifier>>(scored);
    });
  }
};
struct Gradients : phase24::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    with_modifier<D>(p, [&]<class Modifier>(const DeviceProblem<T>& scored) {
      launch_fused<T, D, Br, Bc, Modified<Base, Modifier>>(scored);
    });
    const auto* const pieces = static_cast<const phase23::RowPiece*>(p.workspace[2]);
    launch_score_gradients<D, Modified<Base, Combined<T>>>(with_scores_of<Combined<T>>(p), pieces->delta,
                                                           sizeof *pieces / 4);
  }
};
// #endregion

}  // namespace flash::phase28::inline FLASH_MACHINE
