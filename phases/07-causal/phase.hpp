// Phase 07 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 06: causal masks, top-left and bottom-right.
// Use: Run run = phase07::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase07 {

inline constexpr Features features{
    .phase = "07-causal",
    .change = "causal: K/V tiles right of the diagonal are never loaded, only those on it are masked",
    .kernel = true,
    .causal = true,
    .same_bits = true,
    .blocks = {{64, 32}, {32, 64}, {16, 16}}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase07
