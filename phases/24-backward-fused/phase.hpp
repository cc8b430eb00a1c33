// Phase 24 declares itself, provisionally: D = 256 alone.
// Use: phase24::forward_training(problem, kept, Where::Sim);  phase24::backward(gradients, Where::Sim);
#pragma once
#include "phases/23-backward-turns/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase24 {

using Mode = BackwardMode;

inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks);
constexpr bool has(int D, Blocks blocks) {
  return D == 256 && blocks == Blocks{64, 128};
}
inline Workspace workspace(const AnyProblem& p) {
  const Workspace all = phase23::workspace(p);
  const std::int64_t rows = p.B() * p.H() * phase20::padded_rows(p.Sq());
  const bool atomic = p.options.mode == BackwardMode::Atomic;
  return {all[0], all[1], all[2], {"dQ_sum", atomic ? rows * 256 : 0}, all[4], {"centre", p.B() * p.H() * 256}, all[6]};
}
constexpr Features alone(Features features) {
  features.workspace = workspace;
  features.head_dims = {256}, features.blocks = {{64, 128}}, features.has = has, features.hbm_bytes = hbm_bytes;
  return features;
}
inline constexpr Features backward_features = alone(phase23::backward_features);

// As phase 23's, but for three things: additions to dQ_sum are reading and writing; both blocks that share a K/V tile
// read the pieces; and each reads of the other's keys the columns of which it makes dQ. (Provisionally D is padded to
// 256 whatever it is, where the formulas of phases 20 and 23 have smaller ones.)
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  const std::int64_t D = p.D(), heads = p.B() * p.H(), lacking = 256 - phase20::backward_features.padded(D);
  HbmBytes bytes = phase23::hbm_bytes(p, blocks);
  const bool atomic = p.options.mode == BackwardMode::Atomic;
  const std::int64_t Sq = p.Sq(), seen = phase20::seen_keys(p), all_rows = phase20::padded_rows(Sq);
  std::int64_t read = 0, written = 0, pairs = 0;
  phase20::for_each_pair(p, blocks, [&](std::int64_t) { ++pairs; });
  read += pairs * static_cast<std::int64_t>(sizeof(phase23::RowPiece));
  if (Sq > 0) written += 4 * lacking;  // centre
  if (atomic) {
    const std::int64_t added = pairs * blocks.Br * 256 * 4;
    read += added, written += added;
    written += all_rows * lacking * 4;                                          // cleared
    read += (Sq + 15) / 16 * 16 * lacking * 4 + (Sq + 15) / 16 * 32 * lacking;  // rounded
    for (std::int64_t j0 = 0; j0 < seen; j0 += 128) {
      const std::int64_t first = std::min<std::int64_t>(seen - j0, 64),
                         second = std::min<std::int64_t>(seen - j0, 128) - first;
      read += (first * std::max<std::int64_t>(D - 128, 0) + second * std::min<std::int64_t>(D, 128)) * 2;
    }
  } else {
    const Blocks theirs = phase20::dq_blocks(static_cast<int>(256 - lacking)), ours = phase20::dq_blocks(256);
    for (std::int64_t i0 = 0; i0 < Sq; i0 += ours.Br)
      read += p.visible(std::min(i0 + ours.Br, Sq) - 1).end * 2 * p.row_bytes();
    for (std::int64_t i0 = 0; i0 < Sq; i0 += theirs.Br)
      read -= p.visible(std::min(i0 + theirs.Br, Sq) - 1).end * 2 * p.row_bytes();
    read += (Sq + ours.Br - 1) / ours.Br * (ours.Br / 16) * 32 * 256;
    read -= (Sq + theirs.Br - 1) / theirs.Br * (theirs.Br / 16) * 32 * (256 - lacking);
  }
  bytes.read += static_cast<std::uint64_t>(heads * read), bytes.written += static_cast<std::uint64_t>(heads * written);
  return bytes;
}

inline constinit Pass backward_pass{backward_features, &phase20::phase};
inline constinit Phase phase{"24-backward-fused", "the backward pass for D = 256", &phase19::forward_pass,
                             &backward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};
// The same, with what the backward pass needs of it.
template <class T>
Run forward_training(const Problem<T>& p, const Kept& kept, Where where, const MachineOptions& options = {}) {
  return flash::forward_training(phase, p, kept, where, options);
}
// dQ, dK and dV.
template <class T>
Run backward(const GradientProblem<T>& p, Where where, const MachineOptions& options = {},
             Mode mode = Mode::Deterministic) {
  return flash::backward(phase, p, where, options, mode);
}

}  // namespace flash::phase24
