// Phase 01 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once (phase.cpp); attention.hpp is for those who read or include it.
// Use: Run run = phase01::forward(problem);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase01 {

HbmBytes hbm_bytes(const AnyProblem& p, Blocks);

inline constexpr Features features{
    .meets = {Demand::Causal, Demand::AnyStride}, .tiles = false, .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features};
inline constinit Phase phase{
    "01-naive", "S = QK^T and P = softmax(S) as whole matrices: every element is written and read back", &forward_pass};
// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase01
