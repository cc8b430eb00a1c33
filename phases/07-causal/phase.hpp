// Phase 07 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 06: causal masks, top-left and bottom-right.
// Use: Run run = phase07::forward(problem, Where::Checked);
#pragma once
#include "phases/04-tiled-v2/phase.hpp"
#include "phases/06-4d-grid/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase07 {

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::AnyStride},
                                   .same_bits = true,
                                   .blocks = {{64, 32}, {32, 64}, {16, 16}},
                                   .hbm_bytes = phase04::hbm_bytes_of};

inline constinit Pass forward_pass{features, &phase06::phase};
inline constinit Phase phase{"07-causal",
                             "causal: K/V tiles right of the diagonal are never loaded, only those on it are masked",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase07
