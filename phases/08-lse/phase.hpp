// Phase 08 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 07: LSE; lse.hpp has converters, and the state with which partial results merge.
// Use: Run run = phase08::forward(problem, Where::Checked);
#pragma once
#include "phases/04-tiled-v2/phase.hpp"
#include "phases/07-causal/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase08 {

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse, Demand::AnyStride},
                                   .same_bits = true,
                                   .blocks = {{64, 32}, {32, 64}, {16, 16}},
                                   .hbm_bytes = phase04::hbm_bytes_of};

inline constinit Pass forward_pass{features, &phase07::phase};
inline constinit Phase phase{"08-lse", "LSE = m + log l, one number per row: what merging and the backward pass need",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase08
