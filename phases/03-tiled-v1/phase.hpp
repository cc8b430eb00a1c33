// Phase 03 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once (phase.cpp); attention.hpp is for those who read or include it.
// Use: Run run = phase03::forward(problem);
#pragma once
#include "phases/02-online-softmax/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase03 {

HbmBytes hbm_bytes(const AnyProblem& p, Blocks);

inline constexpr Features features{.meets = {Demand::AnyStride}, .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features, &phase02::phase};
inline constinit Phase phase{
    "03-tiled-v1", "keys arrive in tiles, K/V outside: O, l and m are re-read and re-written for each K/V tile",
    &forward_pass};
// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase03
