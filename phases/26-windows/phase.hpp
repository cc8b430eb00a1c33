// Phase 26 declares itself twice: sliding windows on Hopper, by the kernels of phases 19 and 24, and by mma.sync, by
// those of 13 and 20. New since 25: a row's keys have a bound on the left, too. What is new is in windowed.cuh.
// Use: Run run = phase26::forward(problem, Where::Checked);  phase26m::forward(problem, Where::Sim);
#pragma once
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/25-grouped-heads/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash {

// #region features: an earlier phase's, and a demand more
constexpr Features with_windows(Features features) {
  features.meets.add(Demand::Window);
  return features;
}
// #endregion

namespace phase26 {
inline constexpr Features features = with_windows(phase25::features);
inline constexpr Features backward_features = with_windows(phase25::backward_features);
inline constinit Pass forward_pass{features, &phase25::phase}, backward_pass{backward_features, &phase25::phase};
inline constinit Phase phase{"26-windows",
                             "sliding windows: K/V tiles left of them are never loaded, as those right of them",
                             &forward_pass, &backward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};
}  // namespace phase26

namespace phase26m {
// What phase 13 moves: of K and V the keys that some row of a Q tile sees, not whole tiles; Q where there are any.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  return phase14::hbm_bytes_of_tiles(p, {blocks.Br, 1}, false);
}
constexpr Features by_keys(Features features) {
  features.hbm_bytes = hbm_bytes;
  return features;
}
inline constexpr Features features = with_windows(by_keys(phase25m::features));
inline constexpr Features backward_features = with_windows(phase25m::backward_features);
inline constinit Pass forward_pass{features, &phase25m::phase}, backward_pass{backward_features, &phase25m::phase};
inline constinit Phase phase{"26m-windows", "the same without Hopper's instructions: sliding windows by mma.sync",
                             &forward_pass, &backward_pass};
inline constexpr ForwardOf forward{phase};
}  // namespace phase26m

}  // namespace flash
