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

// #region workspace: lists of the tiles that a block mask leaves (lists.cuh)
// For tiles of 64 rows and `keys` keys, or larger ones; of each head and batch entry with a mask of its own.
inline Piece lists_piece(const AnyProblem& p, std::int64_t keys) {
  if (!is_modified(p)) return {"tile lists", 0};
  const AnyView& blocks = p.blocks;
  const std::int64_t group = p.H() / std::max<std::int64_t>(p.shape().Hk, 1);
  const std::int64_t heads = blocks.given() ? blocks.B() * std::max(blocks.H(), group) : group;
  const std::int64_t q_tiles = (p.Sq() + 63) / 64, kv_tiles = (p.Sk() + keys - 1) / keys;
  const std::int64_t of_rows = q_tiles * (kv_tiles + 3), of_keys = kv_tiles * (2 * q_tiles + 4);
  return {"tile lists", heads * (p.backward() ? of_rows + of_keys + kv_tiles * (q_tiles + 3) : of_rows)};
}
template <const Features& earlier, std::int64_t keys>
constexpr Features with_lists_of() {
  Features features = with_modifiers(earlier);
  features.workspace = [](const AnyProblem& p) {
    Workspace all = earlier.workspace(p);
    all.add(lists_piece(p, keys));
    return all;
  };
  return features;
}
// #endregion

namespace phase28 {
inline constexpr Features sized = with_blocks(phase25::features, {{192, 128}, {128, 128}, {128, 80}});
inline constexpr Features features = with_lists_of<sized, 64>();
inline constexpr Features backward_features = with_lists_of<phase25::backward_features, 64>();
inline constinit Pass forward_pass{features, &phase25::phase}, backward_pass{backward_features, &phase25::phase};
inline constinit Phase phase{"28-modifiers", "what becomes of a score is a struct: softcap, ALiBi, bias, masks, sinks",
                             &forward_pass, &backward_pass};
// O = softmax(f(Q Kᵀ · scale)) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};
}  // namespace phase28

namespace phase28m {
inline constexpr Features sized = with_blocks(phase25m::features, {{128, 64}});
inline constexpr Features sized_backward = with_blocks(phase25m::backward_features, {{128, 128}, {64, 128}, {64, 64}});
inline constexpr Features features = with_lists_of<sized, 64>();
inline constexpr Features backward_features = with_lists_of<sized_backward, 32>();
inline constinit Pass forward_pass{features, &phase25m::phase}, backward_pass{backward_features, &phase25m::phase};
inline constinit Phase phase{"28m-modifiers", "the same without Hopper's instructions: modified scores by mma.sync",
                             &forward_pass, &backward_pass};
inline constexpr ForwardOf forward{phase};
}  // namespace phase28m

}  // namespace flash
