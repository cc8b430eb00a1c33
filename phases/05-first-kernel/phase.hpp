// Phase 05 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 04: the first phase whose program is CUDA C++; the same call runs it on three machines.
// Use: Run run = phase05::forward(problem, Where::Checked);
#pragma once
#include "phases/04-tiled-v2/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase05 {

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::AnyStride},
                                   .blocks = {{64, 32}, {32, 64}, {16, 16}},
                                   .hbm_bytes = phase04::hbm_bytes_of};

inline constinit Pass forward_pass{features, &phase04::phase};
inline constinit Phase phase{"05-first-kernel",
                             "the same algorithm as a CUDA kernel for one head: a block per Q tile, a thread per row",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase05
