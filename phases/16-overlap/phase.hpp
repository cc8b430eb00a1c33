// Phase 16 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 15: S of the next tile is begun before PV of this one: the tensor cores work during softmax.
// Use: Run run = phase16::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase16 {

inline constexpr Features features{
    .phase = "16-overlap",
    .change = "S of the next tile is begun before PV of this one: the tensor cores work during softmax",
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

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase16
