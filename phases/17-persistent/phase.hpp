// Phase 17 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 16: one block per multiprocessor draws tiles; O leaves by stmatrix and TMA while the next tile begins.
// Use: Run run = phase17::forward(problem, Where::Checked);
#pragma once
#include "phases/common/phase.hpp"

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

// What the phase moves, and those after it that copy alike.
HbmBytes hbm_bytes(const Sizes& sizes, Blocks blocks);

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase17
