// Phase 12 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 11: K and V of the next tile are copied while this one is multiplied; Q stays in registers.
// Use: Run run = phase12::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase12 {

inline constexpr Features features{
    .phase = "12-async-copies",
    .change = "cp.async copies the next tile while this one is multiplied; Q stays in registers",
    .kernel = true,
    .causal = true,
    .lse = true,
    .same_bits = true,
    .tensor_cores = true,
    .types = {Type::Float16, Type::BFloat16},
    .head_dims = {64, 128, 256},
    .blocks = {{64, 64}, {16, 16}},
    .capability = {8, 0}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase12
