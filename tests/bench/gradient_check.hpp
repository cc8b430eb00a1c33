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

template <class T>
std::vector<double> widened(const View<T>& x) {
  std::vector<double> out;
  for (std::int64_t b = 0; b < x.B(); ++b)
    for (std::int64_t h = 0; h < x.H(); ++h)
      for (std::int64_t s = 0; s < x.S(); ++s)
        for (std::int64_t d = 0; d < x.D(); ++d) out.push_back(to_float(x.row(b, h, s)[d]));
  return out;
}

// Of dQ, dK and dV as they are now in the problem's memory.
template <class T>
std::array<GradientError, 3> gradient_errors(const GradientProblem<T>& p) {
  const std::vector<double> q = widened(p.q), k = widened(p.k), v = widened(p.v), dout = widened(p.dout);
  std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
  GradientProblem<double> exact;
  exact.q = dense_view(q.data(), p.q.shape), exact.k = dense_view(k.data(), p.k.shape);
  exact.v = dense_view(v.data(), p.v.shape), exact.dout = dense_view(dout.data(), p.dout.shape);
  exact.dq = dense_view(dq.data(), p.q.shape), exact.dk = dense_view(dk.data(), p.k.shape);
  exact.dv = dense_view(dv.data(), p.v.shape), exact.options = p.options;
  phase09::naive_backward(exact);
  const auto compare = [](const std::vector<double>& got, const std::vector<double>& want) {
    double difference = 0, rounding = 0, norm = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double rounded = to_float(from_float<T>(static_cast<float>(want[i])));
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      rounding += (rounded - want[i]) * (rounded - want[i]);
      norm += want[i] * want[i];
    }
    return GradientError{std::sqrt(difference / norm), std::sqrt(rounding / norm)};
  };
  return {compare(widened(p.dq), dq), compare(widened(p.dk), dk), compare(widened(p.dv), dv)};
}

}  // namespace flash::bench
