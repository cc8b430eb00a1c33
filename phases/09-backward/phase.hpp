// Phase 09 declares itself: a forward pass for training, the backward pass, and their entry points.
// New since 08: gradients. The kernels are in forward.cuh and attention.cuh, the derivation in docs/backward.md.
// Use: phase09::forward_training(problem, kept, Where::Sim);  phase09::backward(gradients, Where::Sim);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase09 {

using flash::GradientProblem;
using flash::Kept;
using Mode = BackwardMode;

inline constexpr Features features{
    .phase = "09-backward",
    .change = "the backward pass (--dout); its forward pass stores m, l and O's low bits, and leaves P in fp32",
    .kernel = true,
    .causal = true,
    .lse = true,
    .backward = true,
    .blocks = {{64, 32}, {32, 64}, {16, 16}}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}
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

}  // namespace flash::phase09
