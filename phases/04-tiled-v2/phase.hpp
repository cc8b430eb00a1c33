// Phase 04 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once (phase.cpp); attention.hpp is for those who read or include it.
// Use: Run run = phase04::forward(problem);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase04 {

inline constexpr Features features{
    .phase = "04-tiled-v2",
    .change = "the loops change places, Q outside: O, l and m stay on chip, one division at the end",
    .causal = true,
    .lse = true};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

// What FlashAttention-2 moves with given tiles, in the kernels of later phases too: Q, O and LSE once; for each Q tile
// the K/V tiles that its last row sees.
inline HbmBytes hbm_bytes_of(const Sizes& s, Blocks blocks) {
  const std::int64_t heads = s.B * s.H, row = s.D * s.element_bytes;
  std::int64_t keys = 0;
  for (std::int64_t i = 0; i < s.Sq; i += blocks.Br) {
    const std::int64_t seen = s.visible(std::min(i + blocks.Br, s.Sq) - 1).end;
    keys += std::min((seen + blocks.Bc - 1) / blocks.Bc * blocks.Bc, s.Sk);
  }
  const std::int64_t read = s.Sq * row + 2 * keys * row, written = s.Sq * row + (s.lse ? s.Sq * 4 : 0);
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

}  // namespace flash::phase04
