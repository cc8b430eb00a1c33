// Phase 16 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 15: S of the next tile is begun before PV of this one: the tensor cores work during softmax.
// Use: Run run = phase16::forward(problem, Where::Checked);
#pragma once
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/15-warp-specialised/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase16 {

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse},
                                   .tensor_cores = true,
                                   .types = {Type::Float16, Type::BFloat16},
                                   .head_dims = {64, 128},
                                   .blocks = {{128, 128}, {128, 64}},
                                   .capability = {9, 0, true},
                                   .hbm_bytes = phase14::hbm_bytes};

inline constinit Pass forward_pass{features, &phase15::phase};
inline constinit Phase phase{"16-overlap",
                             "S of the next tile is begun before PV of this one: the tensor cores work during softmax",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase16
