// Phase 04 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once (phase.cpp); attention.hpp is for those who read or include it.
// Use: Run run = phase04::forward(problem);
#pragma once
#include "phases/03-tiled-v1/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase04 {

HbmBytes hbm_bytes(const AnyProblem& p, Blocks);

// What FlashAttention-2 moves with given tiles, in the kernels of later phases too: Q, O and LSE once; for each Q tile
// the K/V tiles that its last row sees.
inline HbmBytes hbm_bytes_of(const AnyProblem& p, Blocks blocks) {
  const std::int64_t heads = p.B() * p.H(), row = p.row_bytes();
  std::int64_t keys = 0;
  for (std::int64_t i = 0; i < p.Sq(); i += blocks.Br) {
    const std::int64_t seen = p.visible(std::min(i + blocks.Br, p.Sq()) - 1).end;
    keys += std::min((seen + blocks.Bc - 1) / blocks.Bc * blocks.Bc, p.Sk());
  }
  const std::int64_t read = p.Sq() * row + 2 * keys * row, written = p.Sq() * row + (p.lse.given() ? p.Sq() * 4 : 0);
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

inline constexpr Features features{.meets = {Demand::Causal, Demand::Lse, Demand::AnyStride}, .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features, &phase03::phase};
inline constinit Phase phase{"04-tiled-v2",
                             "the loops change places, Q outside: O, l and m stay on chip, one division at the end",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase04
