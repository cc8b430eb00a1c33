// Phase 28m: modified scores by mma.sync: phases 13's and 20's kernels, which hand S to a modifier, here always the one
// for all of them. attention.cuh is the same for Hopper.
// Run it: ./flash tour 28m     Test it: ./flash test 28
#pragma once
#include "phases/13-instruction-diet/attention.cuh"
#include "phases/20-backward-tensor-cores/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/28-modifiers/gradients.cuh"
#include "phases/28-modifiers/lists.cuh"
#include "phases/28-modifiers/phase.hpp"

namespace flash::phase28m::inline FLASH_MACHINE {

// #region launch-mma
using Base = Grouped<std::int64_t>;  // what the phase before gives
template <class T>
using Variant = Modified<Base, Combined<T>>;

struct Attention : phase13::Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    with_lists<Base, Blocks{Br, Bc}>(
        with_scores_of<Combined<T>>(p), p.workspace[0], false,
        [](const DeviceProblem<T>& listed) { phase13::Attention::launch<T, D, Br, Bc, Skipping<Variant<T>>>(listed); });
  }
};
struct Gradients : phase20::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    with_lists<Base, phase20::dq_blocks(D), Blocks{Br, Bc}>(
        with_scores_of<Combined<T>>(p), p.workspace[6], false,
        [](const DeviceProblem<T>& listed) { phase20::Gradients::launch<T, D, Br, Bc, Skipping<Variant<T>>>(listed); });
    launch_score_gradients<D, Variant<T>>(with_scores_of<Combined<T>>(p), static_cast<const float*>(p.workspace[2]),
                                          64);
  }
};
// #endregion

}  // namespace flash::phase28m::inline FLASH_MACHINE
