// lesson.hpp: what the pages on the backward pass by tensor cores try it on: one head of random numbers, what the
// forward pass leaves behind, and room for gradients; their errors in floors, and whether they are the same bits.
// Use: using Lesson = HeadOf<T, phase21::phase>;  Lesson<half> x(N, 64);  x.forward();  …  floors(x);
#pragma once
#include <array>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "phases/arrays/tensor.hpp"
#include "phases/interface/phase.hpp"
#include "phases/pages/exact.hpp"

namespace flash {

template <class T, Phase& phase>
struct HeadOf {
  std::int64_t N, D;
  std::vector<T> q, k, v, o, dout, dq, dk, dv;
  std::vector<std::int16_t> o_lo;
  std::vector<float> lse, m, l;

  // `to_k` is added to all keys.
  HeadOf(std::int64_t N_, std::int64_t D_, Distribution distribution = Distribution::Normal, float to_k = 0)
      : N(N_), D(D_) {
    const auto n = static_cast<std::size_t>(N * D);
    for (auto* x : {&o, &dq, &dk, &dv}) x->resize(n);
    o_lo.resize(n);
    for (auto* x : {&lse, &m, &l}) x->resize(static_cast<std::size_t>(N));
    std::uint32_t stream = 0;
    for (auto* x : {&q, &k, &v, &dout}) {
      const Random random(std::stoul(phase.name), stream++);  // each page has its own numbers
      for (std::size_t i = 0; i < n; ++i)
        x->push_back(from_float<T>(draw(random, distribution, i) + (x == &k ? to_k : 0)));
    }
  }
  template <class U>
  View<U> view(std::vector<std::remove_const_t<U>>& x) {
    return dense_view<U>(x.data(), {1, 1, N, D});
  }
  GradientProblem<T> backward(const Options& options = {}, bool low_bits = true) {
    const Kept kept{low_bits ? view<std::int16_t>(o_lo) : View<std::int16_t>{}, m.data(), l.data()};
    return {view<const T>(q), view<const T>(k), view<const T>(v), view<T>(o), kept,    view<const T>(dout),
            view<T>(dq),      view<T>(dk),      view<T>(dv),      lse.data(), nullptr, options};
  }
  void forward(const Mask& mask = {}) {
    const GradientProblem<T> p = backward();
    const Problem<T> problem{p.q, p.k, p.v, view<T>(o), lse.data(), {.mask = mask}};
    forward_training(phase, problem, p.kept, Where::Sim);
  }
  RowMajor<double> matrix(const std::vector<T>& x) const {
    RowMajor<double> out(N, D);
    for (std::int64_t i = 0; i < N * D; ++i) out.data()[i] = to_float(x[static_cast<std::size_t>(i)]);
    return out;
  }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Errors of dQ, dK and dV in floors: a floor is the error of the exact gradient, rounded to T.
template <class T, Phase& phase>
std::array<double, 3> floors(HeadOf<T, phase>& head, const Options& options = {}) {
  const ExactGradients exact = exact_gradients(head.backward(options));
  std::array<double, 3> out{};
  int i = 0;
  for (const auto& [got, want] : {std::pair{&head.dq, &exact.dq}, {&head.dk, &exact.dk}, {&head.dv, &exact.dv}})
    out[i++] = relative_error(head.matrix(*got), *want) / rounding_floor<T>(*want);
  return out;
}

}  // namespace flash
