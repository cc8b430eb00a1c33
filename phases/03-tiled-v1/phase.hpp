// Phase 03 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once; attention.hpp is for those who read or include it.
// Use: Run run = phase03::forward(problem);
#pragma once
#include <algorithm>

#include "phases/02-online-softmax/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase03 {

// #region paper-blocks
// Line 1 of Algorithm 1: B_c = ⌈M / 4d⌉, B_r = min(B_c, d). M counts numbers, not bytes (often mixed up).
inline Blocks paper_blocks(std::int64_t sram_numbers, std::int64_t D) {
  const std::int64_t Bc = (sram_numbers + 4 * D - 1) / (4 * D);
  return {std::min(Bc, D), Bc};
}
// #endregion

// #region on-chip-bytes
// What really has to be on chip: Q_i, O_i [Br, d], K_j, V_j [Bc, d], S_ij [Br, Bc], l_i, m_i [Br]; fp32, bytes.
inline std::int64_t sram_bytes_needed(Blocks blocks, std::int64_t D) {
  const auto [Br, Bc] = blocks;
  return 4 * (2 * Br * D + 2 * Bc * D + Br * Bc + 2 * Br);
}
// #endregion

// #region fitting-blocks
// The paper's formula leaves S out. Where its tiles do not fit, B_c (and B_r with it) shrinks to the largest that does.
inline Blocks fitting_blocks(std::int64_t sram_bytes, std::int64_t D) {
  Blocks blocks = paper_blocks(sram_bytes / 4, D);
  while (blocks.Bc > 1 && sram_bytes_needed(blocks, D) > sram_bytes)
    blocks = {std::min(blocks.Bc - 1, D), blocks.Bc - 1};
  return blocks;
}
// #endregion

// #region choose-blocks
inline Blocks choose_blocks(const Options& options, std::int64_t D) {
  Blocks blocks = fitting_blocks(options.sram_bytes, D);
  if (options.block_q) blocks.Br = options.block_q;
  if (options.block_k) blocks.Bc = options.block_k;
  return blocks;
}
// #endregion

// K and V once; Q, O, l and m once per K/V tile, O in fp32 until its last pass; O, l and m are set first.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks) {
  const std::int64_t heads = p.B() * p.H(), row = p.row_bytes(), Bc = choose_blocks(p.options, p.D()).Bc;
  const std::int64_t Tc = (p.Sk() + Bc - 1) / Bc, O = p.Sq() * p.D() * 4, lm = 2 * p.Sq() * 4;
  std::int64_t read = 2 * p.Sk() * row + Tc * (p.Sq() * row + O + lm);
  const std::int64_t written = (O + lm) + Tc * lm + (Tc > 0 ? (Tc - 1) * O : 0) + p.Sq() * row;
  if (Tc == 0) read += O;  // no key: O is read once, to be rounded
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

inline constexpr Features features{.meets = {Demand::AnyStride}, .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features, &phase02::phase};
inline constinit Phase phase{
    "03-tiled-v1", "keys arrive in tiles, K/V outside: O, l and m are re-read and re-written for each K/V tile",
    &forward_pass};
// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase03
