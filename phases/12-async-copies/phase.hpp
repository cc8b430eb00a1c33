// Phase 12 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 11: K and V of the next tile are copied while this one is multiplied; Q stays in registers.
// Use: Run run = phase12::forward(problem, Where::Checked);
#pragma once
#include "phases/10-tensor-cores/phase.hpp"
#include "phases/11-swizzle/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase12 {

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse, Demand::AnyStride},
                                   .same_bits = true,
                                   .tensor_cores = true,
                                   .types = {Type::Float16, Type::BFloat16},
                                   .head_dims = {64, 128, 256},
                                   .blocks = {{64, 64}, {16, 16}},
                                   .capability = {8, 0},
                                   .hbm_bytes = phase10::hbm_bytes_of};

inline constinit Pass forward_pass{features, &phase11::phase};
inline constinit Phase phase{"12-async-copies",
                             "cp.async copies the next tile while this one is multiplied; Q stays in registers",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase12
