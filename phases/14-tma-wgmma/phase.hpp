// Phase 14 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 13: Hopper's instructions: tiles are copied by TMA and multiplied by warpgroups (wgmma).
// Use: Run run = phase14::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase14 {

inline constexpr Features features{
    .phase = "14-tma-wgmma",
    .change = "Hopper: one thread copies whole tiles (TMA), warpgroups of 128 threads multiply them (wgmma)",
    .kernel = true,
    .causal = true,
    .lse = true,
    .tensor_cores = true,
    .tensor_maps = true,
    .types = {Type::Float16, Type::BFloat16},
    .head_dims = {64, 128},
    .blocks = {{128, 128}, {128, 64}},
    .capability = {9, 0, true}};

extern Phase phase;

// What is moved by whole tiles: O and LSE once; Q once, or only where its tile sees a key; for each Q tile the K/V
// tiles that its last row sees, up to the last key that any row of Q sees.
inline HbmBytes hbm_bytes_of_tiles(const Sizes& s, Blocks blocks, bool all_of_q) {
  const std::int64_t heads = s.B * s.H, row = s.D * s.element_bytes;
  std::int64_t keys = 0, q_rows = 0;
  for (std::int64_t i = 0; i < s.Sq; i += blocks.Br) {
    const std::int64_t end = std::min(i + blocks.Br, s.Sq), seen = s.visible(end - 1).end;
    keys += std::min((seen + blocks.Bc - 1) / blocks.Bc * blocks.Bc, s.visible(s.Sq - 1).end);
    q_rows += all_of_q || seen > 0 ? end - i : 0;
  }
  const std::int64_t read = q_rows * row + 2 * keys * row, written = s.Sq * row + (s.lse ? s.Sq * 4 : 0);
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

// What phases 14 to 16 move.
inline HbmBytes hbm_bytes(const Sizes& s, Blocks blocks) {
  return hbm_bytes_of_tiles(s, blocks, false);
}

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase14
