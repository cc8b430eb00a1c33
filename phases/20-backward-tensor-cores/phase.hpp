// Phase 20 declares itself: the backward pass on tensor cores, and its entry points. Its forward pass is phase 13's.
// New since 09: the five products by mma, by two kinds of warps. The kernels are in attention.cuh.
// Use: phase20::forward_training(problem, kept, Where::Sim);  phase20::backward(gradients, Where::Sim);
#pragma once
#include <algorithm>

#include "phases/09-backward/phase.hpp"
#include "phases/13-instruction-diet/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase20 {

using Mode = BackwardMode;

// #region sizes: known to the kernels and to the formulas
// The workspace has rows for whole tiles, whatever a kernel's Br is.
inline constexpr std::int64_t row_multiple = 128;
constexpr std::int64_t padded_rows(std::int64_t Sq) {
  return (Sq + row_multiple - 1) / row_multiple * row_multiple;
}

// The deterministic mode's kernel of dQ has tiles of its own: what fits two blocks per multiprocessor (D = 256: one).
constexpr Blocks dq_blocks(int D) {
  return D <= 64 ? Blocks{128, 64} : D <= 128 ? Blocks{128, 32} : Blocks{64, 32};
}

// Of which keys the mean is taken: of every so-manieth that some row sees. What tensor cores cut off O grows with their
// number N, and what of it reaches dQ with N^1.5: N² / 4096 of them, but 64 at least and about 2048 at most.
constexpr std::int64_t centre_step(std::int64_t seen) {
  const std::int64_t some = seen < 512 ? 64 : seen < 2896 ? seen * seen / 4096 : 2048;
  return seen > some ? seen / some : 1;
}
// #endregion

// Blocks: four warps share a K/V tile's keys, 16 or 32 each; with 32 at D = 256 dK would not fit their registers.
constexpr bool has(int D, Blocks blocks) {
  if (blocks == Blocks{32, 64}) return true;
  return D <= 64    ? blocks == Blocks{128, 128} || blocks == Blocks{64, 128}
         : D <= 128 ? blocks == Blocks{64, 128}
                    : blocks == Blocks{64, 64};
}

inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks);

// What it reads of each row but for the tensors: m, 1 / l and δ. What the one-pass variant adds dQ up in. And by how
// much the rows of dS miss their sums.
inline Workspace workspace(const AnyProblem& p) {
  const std::int64_t rows = p.B() * p.H() * padded_rows(p.Sq());
  const bool atomic = p.options.mode == BackwardMode::Atomic;
  const std::int64_t D = p.widest() <= 64 ? 64 : p.widest() <= 128 ? 128 : 256;
  return {{"row_m", rows},      {"row_inverse_l", rows},      {"row_delta", rows}, {"dQ_sum", atomic ? rows * D : 0},
          {"row_excess", rows}, {"centre", p.B() * p.H() * D}};
}

inline constexpr Features backward_features{.kernel = true,
                                            .meets = {Demand::Causal, Demand::Kept, Demand::AnyStride, Demand::Atomic},
                                            .tensor_cores = true,
                                            .types = {Type::Float16, Type::BFloat16},
                                            .head_dims = {64, 128, 256},
                                            .blocks = {{128, 128}, {64, 128}, {64, 64}, {32, 64}},
                                            .has = has,
                                            .capability = {8, 0},
                                            .hbm_bytes = hbm_bytes,
                                            .workspace = workspace};

// Does one of the rows i0 … i1 - 1 see a key of the K/V tile from j0 on?
inline bool sees(const AnyProblem& p, std::int64_t i0, std::int64_t i1, std::int64_t j0, Blocks blocks) {
  const KeyRange<std::int64_t> seen = p.seen(i0, i1 - 1);
  return seen.begin < j0 + blocks.Bc && j0 < seen.end;
}
// Calls f(rows of the Q tile) for each pair of tiles that see each other, as the kernel of dK and dV walks over them.
template <class F>
void for_each_pair(const AnyProblem& p, Blocks blocks, const F& f) {
  for (std::int64_t j0 = 0; j0 < p.Sk(); j0 += blocks.Bc)
    for (std::int64_t i0 = 0; i0 < p.Sq(); i0 += blocks.Br)
      if (const std::int64_t end = std::min(i0 + blocks.Br, p.Sq()); sees(p, i0, end, j0, blocks)) f(end - i0);
}
// The keys that some row sees; and those of them whose mean is the centre.
inline std::int64_t seen_keys(const AnyProblem& p) {
  return p.Sq() > 0 ? p.seen(0, p.Sq() - 1).size() : 0;
}
inline std::int64_t centre_keys(const AnyProblem& p) {
  return seen_keys(p) / centre_step(seen_keys(p));
}

// What moves but for the sums of dS's rows: the first kernel reads O, O_lo, dO and a row's numbers, and clears dQ_sum;
// a K/V tile is read once, Q, dO and three numbers a row as often as they stream by. Deterministic: the other way round
// for dQ, four lanes a row. Atomic: whole tiles are added to dQ_sum, and 16 rows at a time read from there.
inline HbmBytes bytes_without_sums(const AnyProblem& p, Blocks blocks) {
  const std::int64_t heads = p.B() * p.H(), Sq = p.Sq(), row = p.row_bytes(), v_row = p.v_row_bytes();
  const std::int64_t padded = backward_features.padded(p.widest()), all_rows = padded_rows(Sq), pair = row + v_row;
  const bool atomic = p.options.mode == BackwardMode::Atomic;
  const std::int64_t lo = p.o_lo.given() ? v_row : 0, dlse = p.dlse.given() ? 4 : 0, ml = p.m.given() ? 8 : 4;
  const std::int64_t of_keys = p.B() * p.shape().Hk * pair;  // a key of each of K's heads, and its value
  std::int64_t read = Sq * (2 * v_row + lo + dlse + ml), written = 12 * all_rows + Sq * row, added = 0;
  for_each_pair(p, blocks,
                [&](std::int64_t rows) { read += rows * pair + 12 * blocks.Br, added += blocks.Br * padded * 4; });
  if (atomic) {
    read += added + (Sq + 15) / 16 * 16 * padded * 4, written += added + all_rows * padded * 4;
  } else {
    const Blocks own = dq_blocks(static_cast<int>(padded));
    read += Sq * (pair + 4 * 12);
    for (std::int64_t i0 = 0; i0 < Sq; i0 += own.Br) read += p.seen(i0, std::min(i0 + own.Br, Sq) - 1).size() * pair;
  }
  return {static_cast<std::uint64_t>(heads * read + seen_keys(p) * of_keys),
          static_cast<std::uint64_t>(heads * written + p.Sk() * of_keys)};
}

// With the sums: the first kernel reads some keys, and writes their mean and a number a row. Deterministic: four lanes
// a row read that. Atomic: `summed` rows of a pair of tiles are added to it, and two numbers a lane are read for 16
// rows. Each warp reads the mean, two of its columns a lane, for 16 rows.
inline HbmBytes bytes_with_sums(const AnyProblem& p, Blocks blocks, std::int64_t summed) {
  const std::int64_t heads = p.B() * p.H(), Sq = p.Sq(), padded = backward_features.padded(p.widest());
  std::int64_t read = 0, written = 4 * padded_rows(Sq), added = 0;
  if (Sq > 0) read += centre_keys(p) * p.row_bytes(), written += 4 * padded;
  if (p.options.mode == BackwardMode::Atomic) {
    for_each_pair(p, blocks, [&](std::int64_t) { added += summed * 4; });
    read += added + (Sq + 15) / 16 * 32 * (padded + 8), written += added;
  } else {
    const std::int64_t rows = dq_blocks(static_cast<int>(padded)).Br;
    read += Sq * 4 * 4 + (Sq + rows - 1) / rows * (rows / 16) * 32 * padded;
  }
  HbmBytes bytes = bytes_without_sums(p, blocks);
  bytes.read += static_cast<std::uint64_t>(heads * read), bytes.written += static_cast<std::uint64_t>(heads * written);
  return bytes;
}
// Each of eight warps adds the sums of 16 rows or of 32: several have the same rows, and other keys.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  return bytes_with_sums(p, blocks, 8 * (blocks.Br < 64 ? 16 : 32));
}

inline constinit Pass backward_pass{backward_features, &phase09::phase};
inline constinit Phase phase{"20-backward-tensor-cores",
                             "the backward pass by mma: half of the warps make P and dV, half of them dS and dK",
                             &phase13::forward_pass, &backward_pass};
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

}  // namespace flash::phase20
