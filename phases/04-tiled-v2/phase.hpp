// Phase 04 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once; attention.hpp is for those who read or include it.
// Use: Run run = phase04::forward(problem);
#pragma once
#include <algorithm>

#include "phases/03-tiled-v1/phase.hpp"
#include "phases/interface/operands.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase04 {

// What FlashAttention-2 moves with given tiles, in the kernels of later phases too: Q, O and LSE once; for each Q tile
// the K/V tiles that its last row sees.
inline HbmBytes hbm_bytes_of(const AnyProblem& p, Blocks blocks) {
  const std::int64_t heads = p.B() * p.H(), row = p.row_bytes(), pair = row + p.v_row_bytes();
  std::int64_t keys = 0;
  for (std::int64_t i = 0; i < p.Sq(); i += blocks.Br) {
    const std::int64_t seen = p.visible(std::min(i + blocks.Br, p.Sq()) - 1).end;
    keys += std::min((seen + blocks.Bc - 1) / blocks.Bc * blocks.Bc, p.Sk());
  }
  return {static_cast<std::uint64_t>(heads * (p.Sq() * row + keys * pair)), bytes_written(p)};
}

// #region on-chip-bytes
// On chip: Q_i, O_i [Br, d], K_j, V_j [Bc, d], S_ij [Br, Bc], l_i, m_i [Br]; fp32, bytes.
inline std::int64_t sram_bytes_needed(Blocks blocks, std::int64_t D) {
  const auto [Br, Bc] = blocks;
  return 4 * (2 * Br * D + 2 * Bc * D + Br * Bc + 2 * Br);
}
// #endregion

// #region choose-blocks
// What the caller asked for; else 192 x 192, which a CPU multiplies fastest, where it fits (as with 1 MiB); else
// 128 x 64, Bc halved down to 16, then Br, until it fits: K and V pass once per Q tile, so a large Br saves HBM bytes
// and a large Bc does not. What cannot fit is refused by Memory::tile.
inline Blocks choose_blocks(const Options& options, std::int64_t D) {
  Blocks blocks{192, 192};
  if (sram_bytes_needed(blocks, D) > options.sram_bytes) blocks = {128, 64};
  if (options.block_q) blocks.Br = options.block_q;
  if (options.block_k) blocks.Bc = options.block_k;
  const auto too_large = [&] { return sram_bytes_needed(blocks, D) > options.sram_bytes; };
  for (const std::int64_t smallest : {16, 1}) {
    while (too_large() && !options.block_k && blocks.Bc > smallest) blocks.Bc /= 2;
    while (too_large() && !options.block_q && blocks.Br > smallest) blocks.Br /= 2;
  }
  return blocks;
}
// #endregion

// Of this phase, which chooses its own tiles.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks) {
  return hbm_bytes_of(p, choose_blocks(p.options, p.D()));
}

inline constexpr Features features{.meets = {Demand::Causal, Demand::Lse, Demand::AnyStride}, .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features, &phase03::phase};
inline constinit Phase phase{"04-tiled-v2",
                             "the loops change places, Q outside: O, l and m stay on chip, one division at the end",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase04
