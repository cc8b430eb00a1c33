// Phase 06 as a host function: one call, three machines. The kernel is in attention.cuh.
// New since 05: all heads in one launch; forward_variant() does the same with two other grids (variants.cuh).
// Use: Run run = phase06::forward(problem, Where::Checked);
#pragma once
#include "phases/06-4d-grid/grid.hpp"
#include "phases/common/problem.hpp"
#include "phases/common/where.hpp"

namespace flash::phase06 {

inline constexpr Features features{.phase = "06-4d-grid"};

// attention.cuh and variants.cuh, compiled once per machine.
inline namespace on_sim {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
Run run_variant(const Problem<float>& p, Grid shape, const MachineOptions& options);
}  // namespace on_sim
inline namespace on_checked {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
Run run_variant(const Problem<float>& p, Grid shape, const MachineOptions& options);
}  // namespace on_checked
inline namespace on_gpu {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
Run run_variant(const Problem<float>& p, Grid shape, const MachineOptions& options);
}  // namespace on_gpu

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
template <class T>
Run forward(const Problem<T>& p, Where where, const MachineOptions& options = {}) {
  validate(p, features);
  require(where);
  if constexpr (gpu_was_built)
    if (where == Where::Gpu) return on_gpu::run(p, options);
  if constexpr (checked_was_built)
    if (where == Where::Checked) return on_checked::run(p, options);
  return on_sim::run(p, options);
}

// The same with another grid; fp32 only, for the order of blocks does not depend on the type.
inline Run forward_variant(const Problem<float>& p, Grid shape, Where where, const MachineOptions& options = {}) {
  validate(p, features);
  require(where);
  if constexpr (gpu_was_built)
    if (where == Where::Gpu) return on_gpu::run_variant(p, shape, options);
  if constexpr (checked_was_built)
    if (where == Where::Checked) return on_checked::run_variant(p, shape, options);
  return on_sim::run_variant(p, shape, options);
}

}  // namespace flash::phase06
