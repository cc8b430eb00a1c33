// Phase 03 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once (phase.cpp); attention.hpp is for those who read or include it.
// Use: Run run = phase03::forward(problem);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase03 {

inline constexpr Features features{
    .phase = "03-tiled-v1",
    .change = "keys arrive in tiles, K/V outside: O, l and m are re-read and re-written for each K/V tile"};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase03
