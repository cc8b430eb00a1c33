// Phase 22 declares itself: the backward pass with roles, and its entry points. It can what phase 21 can, and moves the
// same bytes. New since 21: a warpgroup that loads, and an order that hides. The kernel is in attention.cuh.
// Use: phase22::forward_training(problem, kept, Where::Sim);  phase22::backward(gradients, Where::Sim);
#pragma once
#include "phases/21-backward-wgmma/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase22 {

using Mode = BackwardMode;

inline constexpr Features backward_features = phase21::backward_features;

inline constinit Pass backward_pass{backward_features, &phase21::phase};
inline constinit Phase phase{"22-backward-roles",
                             "the backward pass with roles: one warpgroup loads, products run under the work on others",
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

}  // namespace flash::phase22
