// exact.hpp: the yardstick of the tour and of the benchmarks of gradients: attention and its gradients in fp64, of the
// very numbers that a problem holds. By Eigen, whole matrices, a head at a time, on all cores; shares no code with the
// phases, and none with the tests' own (tests/reference.hpp, tests/gradients.hpp).
// Use:  relative_error_of(widened(p.o), exact_attention(p).o) <= 2e-6
#pragma once
#include <vector>

#include "phases/interface/problem.hpp"
#include "phases/pages/example.hpp"

namespace flash {

// The rows of all heads, one head after the other: [B·H·S, D].
template <class T>
RowMajor<double> widened(const View<T>& x) {
  RowMajor<double> out(x.B() * x.H() * x.S(), x.D());
  Eigen::Index row = 0;
  for (std::int64_t b = 0; b < x.B(); ++b)
    for (std::int64_t h = 0; h < x.H(); ++h)
      for (std::int64_t s = 0; s < x.S(); ++s, ++row)
        for (std::int64_t d = 0; d < x.D(); ++d) out(row, d) = to_float(x.row(b, h, s)[d]);
  return out;
}

// How far the exact result is from itself once it is rounded to T: no result in T can be better on average.
template <class T>
double rounding_floor(const RowMajor<double>& exact) {
  return relative_error_of(
      exact.unaryExpr([](double x) { return static_cast<double>(to_float(from_float<T>(static_cast<float>(x)))); }),
      exact);
}

// What the formulas need of a problem.
struct ExactInput {
  RowMajor<double> q, k, v;  // [B·H·Sq, D], [B·H·Sk, D]
  std::int64_t heads = 0, Sq = 0, Sk = 0;
  double scale = 0;
  std::vector<std::int64_t> visible;  // [Sq]: row i sees the first so many keys
};
template <class Problem>
ExactInput exact_input(const Problem& p) {
  ExactInput in{widened(p.q), widened(p.k), widened(p.v), p.B() * p.H(), p.Sq(), p.Sk(), p.scale(), {}};
  for (std::int64_t i = 0; i < in.Sq; ++i) in.visible.push_back(p.visible(i).end);
  return in;
}

struct Exact {
  RowMajor<double> o;       // [B·H·Sq, D]
  std::vector<double> lse;  // [B·H·Sq], natural log; -inf where a row sees no key
};
Exact exact_attention(const ExactInput& in);
template <class T>
Exact exact_attention(const Problem<T>& p) {
  return exact_attention(exact_input(p));
}

struct ExactGradients {
  RowMajor<double> dq, dk, dv;  // [B·H·Sq, D], [B·H·Sk, D]
};
// Of a loss with the gradients dO, [B·H·Sq, D], and dLSE, [B·H·Sq] or null.
ExactGradients exact_gradients(const ExactInput& in, const RowMajor<double>& dout, const float* dlse);
template <class T>
ExactGradients exact_gradients(const GradientProblem<T>& p) {
  return exact_gradients(exact_input(p), widened(p.dout), p.dlse);
}

}  // namespace flash
