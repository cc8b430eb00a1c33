// Phase 01 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once (phase.cpp); attention.hpp is for those who read or include it.
// Use: Run run = phase01::forward(problem);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase01 {

inline constexpr Features features{
    .phase = "01-naive",
    .change = "S = QK^T and P = softmax(S) as whole matrices: every element is written and read back",
    .causal = true,
    .tiles = false};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase01
