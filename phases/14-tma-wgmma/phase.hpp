// Phase 14 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 13: Hopper's instructions: tiles are copied by TMA and multiplied by warpgroups (wgmma).
// Use: Run run = phase14::forward(problem, Where::Checked);
#pragma once
#include "phases/common/phase.hpp"

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

// What the phase moves, and those after it that copy alike.
HbmBytes hbm_bytes(const Sizes& sizes, Blocks blocks);
// What is moved by whole tiles: O and LSE once; Q once, or only where its tile sees a key; for each Q tile the K/V tiles
// that its last row sees, up to the last key that any row of Q sees.
HbmBytes hbm_bytes_of_tiles(const Sizes& sizes, Blocks blocks, bool all_of_q);

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase14
