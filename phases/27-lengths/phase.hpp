// Phase 27 declares itself twice: sequences with lengths of their own on Hopper, by the kernels of phases 19 and 24,
// and by mma.sync, by those of 13 and 20. New since 26: cu_seqlens and seqused, and a kernel in front that reads them.
// Use: Run run = phase27::forward(problem, Where::Checked);  phase27m::forward(problem, Where::Sim);
#pragma once
#include "phases/26-windows/phase.hpp"
#include "phases/interface/demands.hpp"
#include "phases/interface/phase.hpp"

namespace flash {

namespace phase27 {
// #region workspace: what the kernel in front finds, and numbers of rows for whole tiles of each sequence
// Sequences, in 64 bytes each at most, two counts, and lists of tiles: a tile has 32 rows or keys or more.
inline Piece found(const AnyProblem& p) {
  const auto tiles = [&](std::int64_t S) { return p.B() * S / 32 + p.sequences(); };
  return {"sequences", 16 * p.sequences() + 4 + 2 * (tiles(p.Sq()) + tiles(p.Sk()))};
}
// `of`: the earlier phase's. What it has for a row it has for a padded row of each sequence; what for a head for a head
// of each sequence.
inline Workspace with_sequences(Workspace (*of)(const AnyProblem& p), const AnyProblem& p) {
  AnyProblem padded = p;
  padded.q.shape[0] = 1;
  padded.q.shape[2] = (p.B() * p.Sq() / phase20::row_multiple + p.sequences()) * phase20::row_multiple;
  const Workspace all = of(padded);
  Workspace mine;
  for (Piece piece : all) {
    if (std::string_view(piece.name) == "centre") piece.count *= p.sequences();
    mine.add(piece);
  }
  mine.add(found(p));
  return mine;
}
// #endregion

// #region entries: boxes end in sequences without lengths, too
inline void check_entries(const AnyProblem& p) {
  if (const std::optional<Refusal> r = demands::entries_obstacle(p))
    refuse(r->argument, r->value, r->expected, r->remedy);
}
// #endregion
}  // namespace phase27

// #region features: an earlier phase's, and one demand more
template <const Features& earlier>
constexpr Features with_lengths() {
  Features features = earlier;
  features.meets.add(Demand::Lengths);
  features.same_bits = true;
  features.hbm_bytes = nullptr;  // they go by the lengths, which formulas do not know
  features.workspace = [](const AnyProblem& p) { return phase27::with_sequences(earlier.workspace, p); };
  return features;
}
// #endregion

namespace phase27 {
inline constexpr Features features = with_lengths<phase26::features>();
inline constexpr Features backward_features = with_lengths<phase26::backward_features>();
inline constinit Pass forward_pass{features, &phase26::phase}, backward_pass{backward_features, &phase26::phase};
inline constinit Phase phase{"27-lengths", "sequences with lengths of their own, one behind the other or padded",
                             &forward_pass, &backward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};
}  // namespace phase27

namespace phase27m {
inline constexpr Features features = with_lengths<phase26m::features>();
inline constexpr Features backward_features = with_lengths<phase26m::backward_features>();
inline constinit Pass forward_pass{features, &phase26m::phase}, backward_pass{backward_features, &phase26m::phase};
inline constinit Phase phase{"27m-lengths", "the same without Hopper's instructions: lengths by mma.sync",
                             &forward_pass, &backward_pass};
inline constexpr ForwardOf forward{phase};
}  // namespace phase27m

}  // namespace flash
