// Phase 17 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 16: one block per multiprocessor draws tiles; O leaves by stmatrix and TMA while the next tile begins.
// Use: Run run = phase17::forward(problem, Where::Checked);
#pragma once
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase17 {

inline constexpr Features features{
    .phase = "17-persistent",
    .change = "one block per multiprocessor draws tiles; O leaves by stmatrix and TMA while the next tile begins",
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

// What phases 17 to 19 move on the simulator: whole tiles, all of Q, and the counter: each block draws a number for
// each of its Q tiles but the first, and one too many; one block resets it. That is a draw for each tile.
inline HbmBytes hbm_bytes(const Sizes& s, Blocks blocks) {
  HbmBytes bytes = phase14::hbm_bytes_of_tiles(s, blocks, true);
  const std::int64_t tiles = s.B * s.H * ((s.Sq + blocks.Br - 1) / blocks.Br);
  if (tiles > 0)
    bytes.read += static_cast<std::uint64_t>(4 * tiles), bytes.written += static_cast<std::uint64_t>(4 * (tiles + 1));
  return bytes;
}

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase17
