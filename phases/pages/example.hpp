// example.hpp: the inputs that the notebooks share: one layer of a real transformer on a sentence, and random numbers.
// Also the yardstick: attention of one head in fp64, and the relative error against it.
// Use:  Example e = sentence();  phase04::forward(e.problem());  relative_error(head(e.o, 3), exact_head(e, 3));
#pragma once
#include <string>
#include <vector>

#include "phases/arrays/tensor.hpp"
#include "phases/interface/matrix.hpp"

namespace flash {

// Q, K, V and room for O and LSE.
struct Example {
  Tensor<float> q, k, v, o;
  std::vector<float> lse;

  Problem<float> problem(const Options& options = {}) {
    return {view(std::as_const(q)), view(std::as_const(k)), view(std::as_const(v)), view(o), nullptr, options};
  }
  Problem<float> problem_with_lse(const Options& options = {}) {
    Problem<float> p = problem(options);
    lse.assign(static_cast<std::size_t>(p.B() * p.H() * p.Sq()), 0);
    p.lse = lse.data();
    return p;
  }
};

// An example's numbers rounded to 16 bits, for kernels that take no others; O is NaN until somebody writes it.
template <class T>
struct Rounded {
  Tensor<T> q, k, v, o;
  std::vector<float> lse;

  explicit Rounded(const Example& e);
  Problem<T> problem(const Options& options = {}) {
    return {view(std::as_const(q)), view(std::as_const(k)), view(std::as_const(v)), view(o), lse.data(), options};
  }
  Example widened() const;  // the same numbers as fp32
};

// One head of N random queries and keys.
Example random_example(std::int64_t N, std::int64_t D, Distribution distribution = Distribution::Normal);

// docs/data: 12 heads of 32 on 50 tokens (stored as fp16; fp32 holds them exactly).
Example sentence();

// The sentence's 50 tokens; `##` continues the word before it.
std::vector<std::string> sentence_words();

// Head h of batch entry 0 as a matrix, in place: [S, D].
inline Eigen::Map<const RowMajor<float>> head(const Tensor<float>& t, std::int64_t h) {
  return {view(t).head(0, h), view(t).S(), view(t).D()};
}

// S = Q Kᵀ · scale of head h, in fp32 or fp64: [Sq, Sk].
template <class Scalar>
RowMajor<Scalar> scores(const Example& e, std::int64_t h);

// softmax of each row in fp64; a row of -inf (no visible key) gives zeros. [Sq, Sk]
RowMajor<double> exact_softmax(const RowMajor<double>& S);

// O of head h in fp64: [Sq, D].
RowMajor<double> exact_head(const Example& e, std::int64_t h);

// ‖got - want‖ / ‖want‖ (Frobenius); NaN when `got` holds one, so compare with `error <= bar`.
double relative_error_of(const RowMajor<double>& got, const RowMajor<double>& want);
template <class Got>
double relative_error(const Got& got, const RowMajor<double>& want) {
  return relative_error_of(got.template cast<double>(), want);
}

// The larger of two errors; NaN counts as the largest of all and stays.
double worse(double a, double b);

// The worst head of e.o against fp64.
double worst_head(const Example& e);

}  // namespace flash
