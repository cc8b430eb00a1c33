// Phase 29 declares itself twice: dropout on Hopper, by phase 19's and 24's kernels, and by mma.sync, by phase 13's and
// 20's. New: P loses elements that (b, h, i, j) and a seed choose. What is new of the kernels is in dropped.cuh.
// Use: Run run = phase29::forward(problem, Where::Checked);  phase29m::forward(problem, Where::Sim);
#pragma once
#include "phases/25-grouped-heads/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash {

// #region features: the phase before's, and one demand more
// Its bytes too: the generator reads nothing.
constexpr Features with_dropout(Features features) {
  features.meets.add(Demand::Dropout);
  features.same_bits = true;
  return features;
}
// #endregion

namespace phase29 {
inline constexpr Features features = with_dropout(phase25::features);
inline constexpr Features backward_features = with_dropout(phase25::backward_features);
inline constinit Pass forward_pass{features, &phase25::phase}, backward_pass{backward_features, &phase25::phase};
inline constinit Phase phase{"29-dropout", "some numbers of P are left out, by a generator that needs no memory",
                             &forward_pass, &backward_pass};
// O = dropped(softmax(Q Kᵀ · scale)) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};
}  // namespace phase29

namespace phase29m {
inline constexpr Features features = with_dropout(phase25m::features);
inline constexpr Features backward_features = with_dropout(phase25m::backward_features);
inline constinit Pass forward_pass{features, &phase25m::phase}, backward_pass{backward_features, &phase25m::phase};
inline constinit Phase phase{"29m-dropout", "the same without Hopper's instructions: dropout by mma.sync",
                             &forward_pass, &backward_pass};
inline constexpr ForwardOf forward{phase};
}  // namespace phase29m

}  // namespace flash
