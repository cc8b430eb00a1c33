// Phase 09 as host functions: a forward pass for training and the backward pass; one call, three machines.
// New since 08: gradients. The kernels are in forward.cuh and attention.cuh.
// Use: phase09::forward_training(problem, o_lo, Where::Sim);  phase09::backward(gradients, Where::Sim);
#pragma once
#include "phases/09-backward/problem.hpp"
#include "phases/common/where.hpp"

namespace flash::phase09 {

// attention.cuh, compiled once per machine.
#define FLASH_PHASE09_ON(machine)                                                                      \
  inline namespace machine {                                                                           \
  template <class T>                                                                                   \
  Run run_forward(const Problem<T>& p, const View<std::int16_t>& o_lo, const MachineOptions& options); \
  template <class T>                                                                                   \
  Run run_backward(const GradientProblem<T>& p, Mode mode, const MachineOptions& options);             \
  }
FLASH_PHASE09_ON(on_sim)
FLASH_PHASE09_ON(on_checked)
FLASH_PHASE09_ON(on_gpu)
#undef FLASH_PHASE09_ON

// O, LSE, and with room for it O_lo = what rounding took from O: 2·N·D bytes more, for a backward pass whose δ is
// precise. For fp32 leave o_lo out.
template <class T>
Run forward_training(const Problem<T>& p, const View<std::int16_t>& o_lo, Where where,
                     const MachineOptions& options = {}) {
  validate(p, features);
  if (o_lo.data) {
    if (sizeof(T) != 2)
      refuse("O_lo", "wanted", std::string("none for ") + type_name<T>(), "omit it: O itself is precise enough");
    check_view("O_lo", o_lo);
    for (int i : {0, 1, 2, 3}) check_size("O_lo", o_lo, i, "Q", p.q.shape[i]);
    check_written("O_lo", o_lo);
  }
  require(where);
  if constexpr (gpu_was_built)
    if (where == Where::Gpu) return on_gpu::run_forward(p, o_lo, options);
  if constexpr (checked_was_built)
    if (where == Where::Checked) return on_checked::run_forward(p, o_lo, options);
  return on_sim::run_forward(p, o_lo, options);
}

// The forward pass alone, as in the phases before.
template <class T>
Run forward(const Problem<T>& p, Where where, const MachineOptions& options = {}) {
  return forward_training(p, {}, where, options);
}

// dQ, dK and dV on the machine that `where` names.
template <class T>
Run backward(const GradientProblem<T>& p, Where where, const MachineOptions& options = {},
             Mode mode = Mode::Deterministic) {
  validate(p);
  require(where);
  if constexpr (gpu_was_built)
    if (where == Where::Gpu) return on_gpu::run_backward(p, mode, options);
  if constexpr (checked_was_built)
    if (where == Where::Checked) return on_checked::run_backward(p, mode, options);
  return on_sim::run_backward(p, mode, options);
}

}  // namespace flash::phase09
