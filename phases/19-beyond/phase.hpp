// Phase 19 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 18: a design for each head dimension.
// Use: Run run = phase19::forward(problem, Where::Checked);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::phase19 {

// Which blocks a head dimension has.
constexpr bool has(int D, Blocks blocks) {
  if (D == 64) return blocks.Br > 128;
  return D == 128 ? blocks.Bc == 128 && blocks.Br == 128 : blocks.Br == 128 && blocks.Bc < 128;
}

inline constexpr Features features{
    .phase = "19-beyond",
    .change = "a design for each head dimension: three or four consumer warpgroups at 64, O from registers at 256",
    .kernel = true,
    .causal = true,
    .lse = true,
    .tensor_cores = true,
    .tensor_maps = true,
    .types = {Type::Float16, Type::BFloat16},
    .head_dims = {64, 128, 256},
    .blocks = {{256, 64}, {192, 128}, {128, 128}, {128, 64}, {128, 80}},
    .has = has,
    .capability = {9, 0, true}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

}  // namespace flash::phase19
