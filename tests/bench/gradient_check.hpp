// gradient_check.hpp: whose backward passes are measured, and how far their dQ, dK and dV are from fp64.
// The tests have a reference of their own (tests/gradients.hpp) that shares no code with it.
// Use: const auto [dq, dk, dv] = gradient_errors(problem);  if (!(dq.error <= 2 * dq.floor)) …
#pragma once
#include <array>
#include <vector>

#include "phases/interface/phase.hpp"
#include "phases/pages/exact.hpp"

namespace flash::bench {

// The phases that have a backward pass for this type, in order.
inline std::vector<const Phase*> backward_phases(Type type) {
  std::vector<const Phase*> phases;
  for (const Phase* phase : all_phases())
    if (phase->backward && phase->forward->features.types.contains(type)) phases.push_back(phase);
  if (phases.empty()) throw Error(std::string("no phase has gradients of ") + name(type));
  return phases;
}

struct GradientError {
  double error = 0, floor = 0;  // relative Frobenius error; that of the exact gradient rounded to the type
};

// Of dQ, dK and dV as they are now in the problem's memory.
template <class T>
std::array<GradientError, 3> gradient_errors(const GradientProblem<T>& p) {
  const ExactGradients exact = exact_gradients(p);
  const auto compare = [](const View<T>& got, const RowMajor<double>& want) {
    return GradientError{relative_error_of(widened(got), want), rounding_floor<T>(want)};
  };
  return {compare(p.dq, exact.dq), compare(p.dk, exact.dk), compare(p.dv, exact.dv)};
}

}  // namespace flash::bench
