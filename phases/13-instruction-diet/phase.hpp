// Phase 13 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 12: fewer instructions for the same products.
// Use: Run run = phase13::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase13 {

inline constexpr Features features{
    .phase = "13-instruction-diet",
    .change = "32 rows per warp, scale inside exp2's multiply-add, no rescale until a maximum has grown by 2^8",
    .kernel = true,
    .causal = true,
    .lse = true,
    .tensor_cores = true,
    .types = {Type::Float16, Type::BFloat16},
    .head_dims = {64, 128, 256},
    .blocks = {{128, 64}, {32, 16}},
    .capability = {8, 0}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase13
