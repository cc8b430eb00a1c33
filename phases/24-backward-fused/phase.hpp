// Phase 24 declares itself: the backward pass fused, and its entry points. New since 23: dQ is passed on from block to
// block. The first one stores its share, the last one rounds the sum; no kernel clears dQ_sum, none comes behind, and
// the same order in every run costs little. The kernel is in attention.cuh. New, too: D = 256, in wide.cuh.
// Use: phase24::forward_training(problem, kept, Where::Sim);  phase24::backward(gradients, Where::Sim);
#pragma once
#include "phases/23-backward-turns/phase.hpp"
#include "phases/interface/phase.hpp"
#include "sim/limits.hpp"

namespace flash::phase24 {

using Mode = BackwardMode;
using phase23::RowPiece;

constexpr bool has(int D, Blocks blocks) {
  return D > 128 ? blocks == Blocks{64, 128} : phase23::backward_features.has(D, blocks);
}

// The kernel counts the shares that blocks have drawn, and for each Q tile those that have been added. D = 256: phase
// 23's.
inline Workspace workspace(const AnyProblem& p) {
  if (p.widest() > 128) return phase23::workspace(p);
  const std::int64_t heads = p.B() * p.H(), rows = heads * phase20::padded_rows(p.Sq());
  const std::int64_t D = p.widest() <= 64 ? 64 : 128;
  return {{"row_m", rows},
          {"row_excess", rows},
          {"row_pieces", rows / 64 * static_cast<std::int64_t>(sizeof(RowPiece) / 4)},
          {"centre", heads * (D + 4)},
          {"dQ_sum", rows * D},
          {"counts", 1 + rows / 64}};
}

// What moves at D = 256: as in phase 20, with pieces in place of three numbers a row, which both blocks of a pair read,
// as both add the sums of 64 rows. Atomic: each reads the columns of the other's keys of which it makes dQ.
inline HbmBytes wide_bytes(const AnyProblem& p, Blocks blocks) {
  const std::int64_t heads = p.B() * p.H(), D = p.D(), seen = phase20::seen_keys(p), piece = sizeof(RowPiece);
  HbmBytes bytes = phase20::bytes_with_sums(p, blocks, 2 * 64);
  std::int64_t read = 0, written = phase20::padded_rows(p.Sq()) / 64 * (piece - 8) + (p.Sq() > 0 ? 4 : 0);
  phase20::for_each_pair(p, blocks, [&](std::int64_t) { read += 2 * piece - blocks.Br * 12; });
  if (p.options.mode == BackwardMode::Atomic)
    for (std::int64_t j0 = 0; j0 < seen; j0 += 128) {
      const std::int64_t first = std::min<std::int64_t>(seen - j0, 64), second = std::min<std::int64_t>(seen - j0, 128);
      read += (first * (D - 128) + (second - first) * 128) * 2;
    }
  bytes.read += static_cast<std::uint64_t>(heads * read), bytes.written += static_cast<std::uint64_t>(heads * written);
  return bytes;
}

// And up to 128: the first kernel reads O, O_lo, dO, a row's numbers, its m twice, and some keys; it writes two numbers
// a row, the pieces, the centre and the counts. A K/V tile and the centre are read once, Q, dO and pieces as often as
// they stream by. Of each pair of tiles the first K/V tile stores dQ's share, the last one reads the sum; others add,
// which is neither. Each looks at the count once, which is an atomic, all but the first; and counts, all but the last.
// (Where the mean of K matters, the first ones read their rows' dLSE, too.)
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  if (p.widest() > 128) return wide_bytes(p, blocks);
  const std::int64_t heads = p.B() * p.H(), Sq = p.Sq(), Sk = p.Sk(), row = p.row_bytes(), v_row = p.v_row_bytes();
  const std::int64_t padded = p.widest() <= 64 ? 64 : 128, rows = phase20::padded_rows(Sq), piece = sizeof(RowPiece);
  const std::int64_t lo = p.o_lo.given() ? v_row : 0, dlse = p.dlse.given() ? 4 : 0, ml = p.m.given() ? 8 : 4;
  std::int64_t read = Sq * (2 * v_row + lo + dlse + ml + 4), written = rows / 64 * (64 * 8 + piece - 8 + 4) + Sq * row;
  const std::int64_t of_keys = p.B() * p.shape().Hk;  // heads of K, for which it draws and has K, V, dK and dV
  std::int64_t read_of_keys = phase20::seen_keys(p) * (row + v_row), written_of_keys = Sk * (row + v_row);
  if (Sq > 0) read_of_keys += phase20::centre_keys(p) * row, written_of_keys += 4 * (padded + 4);
  for (std::int64_t j0 = 0; j0 < Sk; j0 += blocks.Bc) {
    if (Sq > 0) read_of_keys += 4, written_of_keys += 4;                                  // its number is drawn
    if (Sq > 0 && phase20::sees(p, 0, Sq, j0, blocks)) read_of_keys += 4 * (padded + 4);  // the centre
    for (std::int64_t i0 = 0; i0 < Sq; i0 += blocks.Br) {
      const std::int64_t end = std::min(i0 + blocks.Br, Sq);
      if (!phase20::sees(p, i0, end, j0, blocks)) continue;
      const KeyRange<std::int64_t> keys = p.seen(i0, end - 1);
      const bool first = j0 <= keys.begin, last = keys.end <= j0 + blocks.Bc;
      read += (end - i0) * (row + v_row) + blocks.Br / 64 * piece;
      if (!first) read += 4, written += 4;
      if (!last) read += 4, written += 4;
      if (first && !last) written += blocks.Br * padded * 4;
      if (last && !first) read += blocks.Br * padded * 4;
    }
  }
  const std::int64_t kv_tiles = (Sk + blocks.Bc - 1) / blocks.Bc;
  HbmBytes bytes{static_cast<std::uint64_t>(heads * read + of_keys * read_of_keys),
                 static_cast<std::uint64_t>(heads * written + of_keys * written_of_keys)};
  if (heads * rows > 0) bytes.written += 4;  // the number of shares that have begun
  if (Sq > 0) {
    const std::int64_t blocks_that_stay = std::min<std::int64_t>(of_keys * kv_tiles, simulated_multiprocessors);
    bytes.read += static_cast<std::uint64_t>(4 * blocks_that_stay);  // each draws one too many
    bytes.written += static_cast<std::uint64_t>(4 * blocks_that_stay);
  }
  return bytes;
}

constexpr Features fused(Features features) {
  features.head_dims = {64, 128, 256}, features.has = has;
  features.hbm_bytes = hbm_bytes, features.workspace = workspace;
  features.meets.add(Demand::SpareMultiprocessors);
  return features;
}
inline constexpr Features backward_features = fused(phase23::backward_features);

inline constinit Pass backward_pass{backward_features, &phase23::phase};
inline constinit Phase phase{"24-backward-fused",
                             "the backward pass fused: dQ goes from block to block, and the last one rounds it",
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

}  // namespace flash::phase24
