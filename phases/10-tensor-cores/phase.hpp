// Phase 10 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 08: the tensor cores multiply; 16-bit inputs only, since that is what they take.
// Use: Run run = phase10::forward(problem, Where::Checked);
#pragma once
#include "phases/04-tiled-v2/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase10 {

inline constexpr Features features{.phase = "10-tensor-cores",
                                   .change = "S = QKᵀ and PV by mma.m16n8k16: a warp multiplies 16 x 16 by 16 x 8",
                                   .kernel = true,
                                   .causal = true,
                                   .lse = true,
                                   .tensor_cores = true,
                                   .types = {Type::Float16, Type::BFloat16},
                                   .head_dims = {64, 128, 256},
                                   .blocks = {{64, 64}, {16, 16}},
                                   .capability = {8, 0}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

// What phases 10 to 12 move, and 13 but for rows of Q that it does not read: as phase 04 with K/V tiles of one row,
// since keys that no row of the Q tile sees are not loaded.
inline HbmBytes hbm_bytes_of(const Sizes& sizes, Blocks blocks) {
  return phase04::hbm_bytes_of(sizes, {blocks.Br, 1});
}

}  // namespace flash::phase10
