// Phase 05 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 04: the first phase whose program is CUDA C++; the same call runs it on three machines.
// Use: Run run = phase05::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase05 {

inline constexpr Features features{
    .phase = "05-first-kernel",
    .change = "the same algorithm as a CUDA kernel for one head: a block per Q tile, a thread per row",
    .kernel = true,
    .blocks = {{64, 32}, {32, 64}, {16, 16}}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase05
