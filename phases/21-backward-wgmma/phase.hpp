// Phase 21 declares itself: the backward pass on wgmma, and its entry points. Its forward pass is phase 19's, the
// numbers of rows and dQ's rounding are phase 20's. New since 20: Hopper's instructions. The kernel is in
// attention.cuh.
// Use: phase21::forward_training(problem, kept, Where::Sim);  phase21::backward(gradients, Where::Sim);
#pragma once
#include "phases/19-beyond/phase.hpp"
#include "phases/20-backward-tensor-cores/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase21 {

using Mode = BackwardMode;

// Blocks: two warpgroups share a K/V tile's keys, 64 each. Of S and dP a lane holds Br / 2 numbers, of dK and dV D / 2:
// twice the columns, half the rows.
constexpr bool has(int D, Blocks blocks) {
  return blocks.Br * D == 64 * 128;
}

// As phase 20's, but each of eight warps adds the sums of 64 rows.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  return phase20::bytes_with_sums(p, blocks, 8 * 64);
}

inline constexpr Features backward_features{.kernel = true,
                                            .meets = {Demand::Causal, Demand::Kept, Demand::Atomic},
                                            .tensor_cores = true,
                                            .types = {Type::Float16, Type::BFloat16},
                                            .head_dims = {64, 128},
                                            .blocks = {{128, 128}, {64, 128}},
                                            .has = has,
                                            .capability = {9, 0, true},
                                            .hbm_bytes = hbm_bytes,
                                            .workspace = phase20::workspace};

inline constinit Pass backward_pass{backward_features, &phase20::phase};
inline constinit Phase phase{"21-backward-wgmma",
                             "the backward pass on wgmma: five products out of one copy of each tile",
                             &phase19::forward_pass, &backward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};
// The same, with what the backward pass needs of it.
template <class T>
Run forward_training(const Problem<T>& p, const Kept& kept, Where where, const MachineOptions& options = {}) {
  return flash::forward_training(phase, p, kept, where, options);
}
// dQ, dK and dV.
template <class T>
Run backward(const GradientProblem<T>& p, Where where, const MachineOptions& options = {},
             Mode mode = Mode::Deterministic) {
  return flash::backward(phase, p, where, options, mode);
}

}  // namespace flash::phase21
