// Phase 11 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 10: ldmatrix loads fragments, and rows lie in shared memory so that it meets no bank conflict.
// Use: Run run = phase11::forward(problem, Where::Checked);
#pragma once
#include "phases/10-tensor-cores/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase11 {

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse, Demand::AnyStride},
                                   .same_bits = true,
                                   .tensor_cores = true,
                                   .types = {Type::Float16, Type::BFloat16},
                                   .head_dims = {64, 128, 256},
                                   .blocks = {{64, 64}, {16, 16}},
                                   .capability = {8, 0},
                                   .hbm_bytes = phase10::hbm_bytes_of};

inline constinit Pass forward_pass{features, &phase10::phase};
inline constinit Phase phase{
    "11-swizzle", "ldmatrix, and rows whose pieces of 16 bytes change places (XOR): no bank conflicts", &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase11
