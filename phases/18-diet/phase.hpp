// Phase 18 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 17: Q in registers, maxima of three integers, S of the next Q tile before the last PV of this one.
// Use: Run run = phase18::forward(problem, Where::Checked);
#pragma once
#include "phases/17-persistent/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase18 {

inline constexpr Features features{
    .kernel = true,
    .meets = {Demand::Causal, Demand::Lse, Demand::Kept, Demand::WideOutput, Demand::SpareMultiprocessors},
    .tensor_cores = true,
    .types = {Type::Float16, Type::BFloat16},
    .head_dims = {64, 128},
    .blocks = {{128, 128}, {128, 64}},
    .capability = {9, 0, true},
    .hbm_bytes = phase17::hbm_bytes,
    .workspace = phase17::counter};

inline constinit Pass forward_pass{features, &phase17::phase};
inline constinit Phase phase{
    "18-diet", "Q in registers, maxima of three integers, S of the next Q tile before the last PV of this one",
    &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase18
