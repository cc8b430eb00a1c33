// Phase 09 declares itself: a forward pass for training, the backward pass, and their entry points.
// New since 08: gradients. The kernels are in forward.cuh and attention.cuh, the derivation in docs/backward.md.
// Use: phase09::forward_training(problem, kept, Where::Sim);  phase09::backward(gradients, Where::Sim);
#pragma once
#include <algorithm>

#include "phases/04-tiled-v2/phase.hpp"
#include "phases/08-lse/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase09 {

using flash::GradientProblem;
using flash::Kept;
using Mode = BackwardMode;

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse, Demand::Kept, Demand::AnyStride},
                                   .blocks = {{64, 32}, {32, 64}, {16, 16}},
                                   .hbm_bytes = phase04::hbm_bytes_of};

inline constinit Pass forward_pass{features, &phase08::phase};

// What the backward pass moves: δ reads O, O_lo, dO and dLSE; dK and dV read K and V once, Q and dO as often as they
// stream by, dQ the other way round, each with the numbers of its rows; Atomic: dK and dV's pass adds to a sum of dQ.
inline HbmBytes hbm_bytes_of_gradients(const AnyProblem& p, Blocks blocks) {
  const std::int64_t heads = p.B() * p.H(), Sq = p.Sq(), Sk = p.Sk(), row = p.row_bytes(), D = p.D();
  const bool atomic = p.options.mode == BackwardMode::Atomic;
  std::int64_t rows = 0, keys = 0, added = 0;  // that stream by, of all pairs of tiles that see each other; added rows
  for (std::int64_t i0 = 0; i0 < Sq; i0 += blocks.Br) {
    const std::int64_t end = std::min(i0 + blocks.Br, Sq);
    for (std::int64_t j0 = 0; j0 < p.visible(end - 1).end; j0 += blocks.Bc) {
      rows += end - i0, keys += std::min(blocks.Bc, Sk - j0);
      for (std::int64_t i = i0; i < end; ++i) added += p.visible(i).end > j0;
    }
  }
  const std::int64_t readers = std::max(features.padded(D) / 32, 1);  // threads that share a row of dQ
  const std::int64_t numbers = 4 + (p.m.given() ? 8 : 4);             // δ; m and l, or LSE
  const std::int64_t lo = p.o_lo.given() ? 2 * D : 0, dlse = p.dlse.given() ? 4 : 0;
  std::int64_t read = Sq * (2 * row + lo + dlse) + 2 * Sk * row + rows * (2 * row + numbers);
  std::int64_t written = Sq * 4 + 2 * Sk * row + Sq * row;
  if (atomic)
    read += (added + Sq) * D * 4, written += (added + Sq) * D * 4;
  else
    read += Sq * (2 * row + readers * numbers) + keys * 2 * row;
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

// δ of each row, and what the one-pass variant adds dQ up in.
inline Workspace gradient_workspace(const AnyProblem& p) {
  const std::int64_t rows = p.B() * p.H() * p.Sq();
  return {{"delta", rows}, {"dQ_sum", p.options.mode == BackwardMode::Atomic ? rows * p.D() : 0}};
}

inline constexpr Features backward_features{.kernel = true,
                                            .meets = {Demand::Causal, Demand::Kept, Demand::AnyStride, Demand::Atomic},
                                            .blocks = {{64, 32}, {32, 64}, {16, 16}},
                                            .hbm_bytes = hbm_bytes_of_gradients,
                                            .workspace = gradient_workspace};

inline constinit Pass backward_pass{backward_features};
inline constinit Phase phase{
    "09-backward", "the backward pass (--dout); its forward pass stores m, l and O's low bits, and leaves P in fp32",
    &forward_pass, &backward_pass};
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

}  // namespace flash::phase09
