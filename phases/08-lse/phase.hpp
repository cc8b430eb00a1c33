// Phase 08 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 07: LSE; lse.hpp has converters, and the state with which partial results merge.
// Use: Run run = phase08::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase08 {

inline constexpr Features features{
    .phase = "08-lse",
    .change = "LSE = m + log l, one number per row: what merging and the backward pass need",
    .kernel = true,
    .causal = true,
    .lse = true,
    .same_bits = true,
    .blocks = {{64, 32}, {32, 64}, {16, 16}}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase08
