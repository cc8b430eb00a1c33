// Phase 10 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 08: the tensor cores multiply; 16-bit inputs only, since that is what they take.
// Use: Run run = phase10::forward(problem, Where::Checked);
#pragma once
#include "phases/04-tiled-v2/phase.hpp"
#include "phases/08-lse/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase10 {

// What phases 10 to 12 move, and 13 but for rows of Q that it does not read: as phase 04 with K/V tiles of one row,
// since keys that no row of the Q tile sees are not loaded.
inline HbmBytes hbm_bytes_of(const AnyProblem& p, Blocks blocks) {
  return phase04::hbm_bytes_of(p, {blocks.Br, 1});
}

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse, Demand::AnyStride},
                                   .tensor_cores = true,
                                   .types = {Type::Float16, Type::BFloat16},
                                   .head_dims = {64, 128, 256},
                                   .blocks = {{64, 64}, {16, 16}},
                                   .capability = {8, 0},
                                   .hbm_bytes = hbm_bytes_of};

inline constinit Pass forward_pass{features, &phase08::phase};
inline constinit Phase phase{"10-tensor-cores", "S = QKᵀ and PV by mma.m16n8k16: a warp multiplies 16 x 16 by 16 x 8",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase10
