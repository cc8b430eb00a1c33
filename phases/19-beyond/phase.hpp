// Phase 19 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 18: a design for each head dimension.
// Use: Run run = phase19::forward(problem, Where::Checked);
#pragma once
#include "phases/17-persistent/phase.hpp"
#include "phases/18-diet/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase19 {

// Which blocks a head dimension has.
constexpr bool has(int D, Blocks blocks) {
  if (D == 64) return blocks.Br > 128;
  return D == 128 ? blocks.Bc == 128 && blocks.Br == 128 : blocks.Br == 128 && blocks.Bc < 128;
}

inline constexpr Features features{
    .kernel = true,
    .meets = {Demand::Causal, Demand::Lse, Demand::Kept, Demand::WideOutput, Demand::SpareMultiprocessors},
    .tensor_cores = true,
    .types = {Type::Float16, Type::BFloat16},
    .head_dims = {64, 128, 256},
    .blocks = {{256, 64}, {192, 128}, {128, 128}, {128, 64}, {128, 80}},
    .has = has,
    .capability = {9, 0, true},
    .hbm_bytes = phase17::hbm_bytes,
    .workspace = phase17::counter};

inline constinit Pass forward_pass{features, &phase18::phase};
inline constinit Phase phase{
    "19-beyond", "a design for each head dimension: three or four consumer warpgroups at 64, O from registers at 256",
    &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase19
