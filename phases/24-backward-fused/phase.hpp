// Phase 24 declares itself, provisionally: D = 256 alone.
// Use: phase24::forward_training(problem, kept, Where::Sim);  phase24::backward(gradients, Where::Sim);
#pragma once
#include "phases/23-backward-turns/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase24 {

using Mode = BackwardMode;

inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks);
constexpr bool has(int D, Blocks blocks) {
  return D == 256 && blocks == Blocks{64, 128};
}
inline Workspace workspace(const AnyProblem& p) {
  const Workspace all = phase23::workspace(p);
  const std::int64_t rows = p.B() * p.H() * phase20::padded_rows(p.Sq());
  const bool atomic = p.options.mode == BackwardMode::Atomic;
  return {all[0], all[1], all[2], {"dQ_sum", atomic ? rows * 256 : 0}, all[4], all[5], {"centre", p.B() * p.H() * 256}};
}
constexpr Features wide(Features features) {
  features.workspace = workspace;
  features.head_dims = {256}, features.blocks = {{64, 128}}, features.has = has, features.hbm_bytes = hbm_bytes;
  return features;
}
inline constexpr Features backward_features = wide(phase23::backward_features);

inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  return phase23::hbm_bytes(p, blocks);
}

inline constinit Pass backward_pass{backward_features, &phase20::phase};
inline constinit Phase phase{"24-backward-fused", "the backward pass for D = 256", &phase19::forward_pass,
                             &backward_pass};
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

}  // namespace flash::phase24
