// gradient_check.hpp: how far dQ, dK and dV are from fp64, for the benchmarks of phase 09: the naive backward pass in
// double on the same inputs. The tests have a reference of their own (tests/gradients.hpp) that shares no code with it.
// Use: const auto [dq, dk, dv] = gradient_errors(problem);  if (!(dq.error <= 2 * dq.floor)) …
#pragma once
#include <array>
#include <cmath>
#include <vector>

#include "phases/09-backward/naive.hpp"

namespace flash::bench {

struct GradientError {
  double error = 0, floor = 0;  // relative Frobenius error; that of the exact gradient rounded to the type
};

// Of dQ, dK and dV as they are now in the problem's memory.
template <class T>
std::array<GradientError, 3> gradient_errors(const GradientProblem<T>& p) {
  const phase09::ExactGradients exact = phase09::exact_gradients(p);
  const auto compare = [](const View<T>& got, const std::vector<double>& want) {
    double difference = 0, rounding = 0, norm = 0;
    std::size_t i = 0;
    for (std::int64_t b = 0; b < got.B(); ++b)
      for (std::int64_t h = 0; h < got.H(); ++h)
        for (std::int64_t s = 0; s < got.S(); ++s)
          for (std::int64_t d = 0; d < got.D(); ++d, ++i) {
            const double off = to_float(got.row(b, h, s)[d]) - want[i];
            const double rounded = to_float(from_float<T>(static_cast<float>(want[i]))) - want[i];
            difference += off * off, rounding += rounded * rounded, norm += want[i] * want[i];
          }
    return GradientError{std::sqrt(difference / norm), std::sqrt(rounding / norm)};
  };
  return {compare(p.dq, exact.dq), compare(p.dk, exact.dk), compare(p.dv, exact.dv)};
}

}  // namespace flash::bench
