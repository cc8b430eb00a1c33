// Phase 06 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 05: all heads in one launch; forward_variant() does the same with two other grids (variants.cuh).
// Use: Run run = phase06::forward(problem, Where::Checked);
#pragma once
#include "phases/06-4d-grid/grid.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase06 {

inline constexpr Features features{
    .phase = "06-4d-grid",
    .change = "a kernel that takes [B, H, S, D] with any strides: one grid for all Q tiles of all heads",
    .kernel = true,
    .same_bits = true,
    .blocks = {{64, 32}, {32, 64}, {16, 16}}};

extern Phase phase;

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return flash::forward(phase, p, where, options);
}

// The same with another grid; fp32 only, for the order of blocks does not depend on the type.
using VariantEntry = Run (*)(const Problem<float>& p, Grid grid, const MachineOptions& options);
extern std::array<VariantEntry, 3> variant_entries;  // by machine, as Phase::entries
Run forward_variant(const Problem<float>& p, Grid grid, Where where = Where::Sim, const MachineOptions& options = {});

}  // namespace flash::phase06
