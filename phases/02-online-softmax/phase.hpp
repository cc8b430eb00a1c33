// Phase 02 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once (phase.cpp); attention.hpp is for those who read or include it.
// Use: Run run = phase02::forward(problem);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase02 {

inline constexpr Features features{
    .phase = "02-online-softmax",
    .change = "one pass with the state (m, l, o): S and P are gone, but K and V pass once per row",
    .causal = true,
    .lse = true,
    .tiles = false};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase02
