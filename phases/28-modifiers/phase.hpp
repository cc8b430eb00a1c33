// Phase 28 declares itself twice: modified scores on Hopper, by phase 19's and 24's kernels, and by mma.sync, by those
// of phases 13 and 20. New: what becomes of a score is a struct. The struct's place is in modified.cuh.
// Use: Run run = enter(phase28::phase, problem, Where::Checked);  enter(phase28m::phase, problem, Where::Sim);
#pragma once
#include "phases/25-grouped-heads/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash {

// #region features: an earlier phase's, and what may become of a score
constexpr Features with_modifiers(Features features) {
  for (const Demand demand : {Demand::Softcap, Demand::Alibi, Demand::Bias, Demand::BoolMask, Demand::Documents,
                              Demand::BlockMask, Demand::Sinks})
    features.meets.add(demand);
  features.same_bits = true;
  return features;
}
// Each D has one size of blocks: every modifier is a kernel of its own for each of them.
constexpr Features with_blocks(Features features, std::initializer_list<Blocks> blocks) {
  features.blocks = blocks;
  return features;
}
// Does anything become of scores but a mask? Elsewhere the phase is the one before.
inline bool is_modified(const AnyProblem& p) {
  return p.options.softcap != 0 || p.slopes.given() || p.bias.given() || p.allowed.given() || p.document_q.given() ||
         p.blocks.given() || p.sinks.given();
}
// #endregion

namespace phase28 {
inline constexpr Features features =
    with_modifiers(with_blocks(phase25::features, {{192, 128}, {128, 128}, {128, 80}}));
inline constexpr Features backward_features = with_modifiers(phase25::backward_features);
inline constinit Pass forward_pass{features, &phase25::phase}, backward_pass{backward_features, &phase25::phase};
inline constinit Phase phase{"28-modifiers", "what becomes of a score is a struct: softcap, ALiBi, bias, masks, sinks",
                             &forward_pass, &backward_pass};
// O = softmax(f(Q Kᵀ · scale)) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};
}  // namespace phase28

namespace phase28m {
inline constexpr Features features = with_modifiers(with_blocks(phase25m::features, {{128, 64}}));
inline constexpr Features backward_features =
    with_modifiers(with_blocks(phase25m::backward_features, {{128, 128}, {64, 128}, {64, 64}}));
inline constinit Pass forward_pass{features, &phase25m::phase}, backward_pass{backward_features, &phase25m::phase};
inline constinit Phase phase{"28m-modifiers", "the same without Hopper's instructions: modified scores by mma.sync",
                             &forward_pass, &backward_pass};
inline constexpr ForwardOf forward{phase};
}  // namespace phase28m

}  // namespace flash
