// Phase 11 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 10: ldmatrix loads fragments, and rows lie in shared memory so that it meets no bank conflict.
// Use: Run run = phase11::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase11 {

inline constexpr Features features{
    .phase = "11-swizzle",
    .change = "ldmatrix, and rows whose pieces of 16 bytes change places (XOR): no bank conflicts",
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

}  // namespace flash::phase11
