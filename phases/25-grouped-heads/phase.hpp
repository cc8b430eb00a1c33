// Phase 25 declares itself twice: grouped heads on Hopper, by phase 19's kernels, and by mma.sync, by phase 13's.
// New: fewer heads of K and V than of Q, and V as wide as it likes. What is new of the kernels is in grouped.cuh.
// Use: Run run = phase25::forward(problem, Where::Checked);  phase25m::forward(problem, Where::Sim);
#pragma once
#include "phases/13-instruction-diet/phase.hpp"
#include "phases/19-beyond/phase.hpp"
#include "phases/20-backward-tensor-cores/phase.hpp"
#include "phases/24-backward-fused/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash {

// #region features: an earlier phase's, and two demands more
// Their bytes too: K and V are asked for once for each Q tile of each head of Q, whoever shares them.
constexpr Features with_grouped_heads(Features features) {
  for (const Demand demand : {Demand::FewerHeads, Demand::OtherDv}) features.meets.add(demand);
  features.same_bits = true;
  return features;
}
// #endregion

namespace phase25 {
inline constexpr Features features = with_grouped_heads(phase19::features);
// Phase 24's kernel for D = 256 is another one, and does not ask: 25m has that size.
constexpr Features up_to_128(Features features) {
  features.head_dims = {64, 128};
  return features;
}
inline constexpr Features backward_features = with_grouped_heads(up_to_128(phase24::backward_features));
inline constinit Pass forward_pass{features, &phase19::phase}, backward_pass{backward_features, &phase24::phase};
inline constinit Phase phase{"25-grouped-heads",
                             "several heads of Q share one of K and V, whose rows have a width of their own",
                             &forward_pass, &backward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};
}  // namespace phase25

namespace phase25m {
// Blocks of 32 rows, which show many tiles of few rows, are there for D = 64 alone: each is a kernel more to compile.
template <const Features& earlier>
constexpr Features large_beyond_64() {
  Features features = earlier;
  features.has = [](int D, Blocks blocks) { return (D == 64 || blocks.Br > 32) && earlier.has(D, blocks); };
  return features;
}
inline constexpr Features features = with_grouped_heads(large_beyond_64<phase13::features>());
inline constexpr Features backward_features = with_grouped_heads(large_beyond_64<phase20::backward_features>());
inline constinit Pass forward_pass{features, &phase13::phase}, backward_pass{backward_features, &phase20::phase};
inline constinit Phase phase{"25m-grouped-heads", "the same without Hopper's instructions: grouped heads by mma.sync",
                             &forward_pass, &backward_pass};
inline constexpr ForwardOf forward{phase};
}  // namespace phase25m

}  // namespace flash
