// Phase 08 as a host function: one call, three machines. The kernel is in attention.cuh.
// New since 07: LSE, converters for those who count in base 2, and the state with which partial results merge.
// Use: Run run = phase08::forward(problem, Where::Checked);
#pragma once
#include "phases/02-online-softmax/attention.hpp"
#include "phases/common/problem.hpp"
#include "phases/common/where.hpp"

namespace flash::phase08 {

inline constexpr Features features{.phase = "08-lse", .causal = true, .lse = true};

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

// Triton's tutorial kernel, FlashInfer and others hand out log2 Σ exp(s); ours is the natural logarithm.
inline float lse_to_base2(float natural) {
  return natural * 1.44269504f;  // log2 e
}
inline float lse_from_base2(float base2) {
  return base2 * 0.693147181f;  // ln 2
}

// A row of O and its LSE as phase 02's state, with m = LSE and l = 1: softmax over any set of keys can be cut into
// disjoint sets, computed anywhere, and put together with phase02::merge.
template <class T>
phase02::State partial(const T* o_row /*[D]*/, std::int64_t D, float lse) {
  phase02::State state{.m = lse, .l = lse == -infinity ? 0.0f : 1.0f, .o = Eigen::VectorXf(D)};
  for (std::int64_t d = 0; d < D; ++d) state.o[d] = to_float(o_row[d]);
  return state;
}

}  // namespace flash::phase08
