// Phase 23 declares itself: the backward pass in turns, and its entry points. New since 22: a warpgroup makes all of dQ
// of every other tile, which leaves through shared memory; the numbers of rows come in pieces. The kernel is in
// attention.cuh.
// Use: phase23::forward_training(problem, kept, Where::Sim);  phase23::backward(gradients, Where::Sim);
#pragma once
#include "phases/22-backward-roles/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase23 {

using Mode = BackwardMode;

// #region piece
// The numbers of 64 rows, as the kernel of dK and dV reads them.
struct alignas(16) RowPiece {
  float base[64];  // m + log2 l, or log2 l alone; +inf where P is to be 0
  float delta[64];
  std::int32_t extreme;  // is some m too large to have log2 l added to it? Then there is log2 l alone
  std::int32_t number;   // of the piece, counted through all heads
};
// #endregion

inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks);

// Phase 22's, and the pieces.
inline Workspace workspace(const AnyProblem& p) {
  const Workspace all = phase22::backward_features.workspace(p);
  const std::int64_t pieces = p.B() * p.H() * phase20::padded_rows(p.Sq()) / 64;
  constexpr std::int64_t numbers = sizeof(RowPiece) / 4;
  return {
      all[0], all[1], all[2], all[3], all[4], all[5], {"row_pieces", pieces * numbers}, {"off_centre", p.B() * p.H()}};
}

constexpr Features with_pieces(Features features) {
  features.hbm_bytes = hbm_bytes, features.workspace = workspace;
  return features;
}
inline constexpr Features backward_features = with_pieces(phase22::backward_features);

// As phase 22's, but for three things. A piece for 64 rows is written once and read as often as they stream by, in
// place of three numbers a row. Bulk reductions add to dQ_sum, which is neither reading nor writing. And the consumers
// of a block ask for off_centre, and find 0. (Where they do not, a tile's rows are summed once, and as many sums are
// added. Of extreme pieces m is read, too.)
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  const bool atomic = p.options.mode == BackwardMode::Atomic;
  HbmBytes bytes = phase20::bytes_with_sums(p, blocks, 0);
  const std::uint64_t heads = static_cast<std::uint64_t>(p.B() * p.H());
  std::int64_t pairs = 0;
  phase20::for_each_pair(p, blocks, [&](std::int64_t) { ++pairs; });
  const auto of_pairs = [&](std::int64_t bytes_of_pair) {
    return heads * static_cast<std::uint64_t>(pairs * bytes_of_pair);
  };
  const std::int64_t piece = sizeof(RowPiece), added = atomic ? blocks.Br * backward_features.padded(p.D()) * 4 : 0;
  bytes.read += of_pairs(blocks.Br / 64 * piece), bytes.read -= of_pairs(blocks.Br * 12 + added);
  if (atomic)
    bytes.read += heads * static_cast<std::uint64_t>((phase20::seen_keys(p) + blocks.Bc - 1) / blocks.Bc * 4 * 256);
  if (p.Sq() > 0) bytes.written += heads * 4;
  const std::int64_t written = piece - 8;  // but for the gap at its end
  bytes.written += heads * static_cast<std::uint64_t>(phase20::padded_rows(p.Sq()) / 64 * written);
  bytes.written -= of_pairs(added);
  return bytes;
}

inline constinit Pass backward_pass{backward_features, &phase22::phase};
inline constinit Phase phase{
    "23-backward-turns", "the backward pass in turns: warpgroups make dQ by turns, a tile behind, and TMA adds it up",
    &phase19::forward_pass, &backward_pass};
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

}  // namespace flash::phase23
