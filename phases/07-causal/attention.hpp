// Phase 07 as a host function: one call, three machines. The kernel is in attention.cuh.
// New since 06: masks, top-left and bottom-right; Run::tiles says how many tiles were full, masked and skipped.
// Use: Run run = phase07::forward(problem, Where::Checked);
#pragma once
#include "phases/common/problem.hpp"
#include "phases/common/where.hpp"

namespace flash::phase07 {

inline constexpr Features features{.phase = "07-causal", .causal = true};

// attention.cuh, compiled once per machine.
inline namespace on_sim {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
}
inline namespace on_checked {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
}
inline namespace on_gpu {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
}

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

}  // namespace flash::phase07
