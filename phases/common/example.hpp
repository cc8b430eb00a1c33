// example.hpp: the inputs that the notebooks share: one layer of a real transformer on a sentence, and random numbers.
// Also the yardstick: attention of one head in fp64, and the relative error against it.
// Use:  Example e = sentence();  phase04::forward(e.problem());  relative_error(head(e.o, 3), exact_head(e, 3));
#pragma once
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "phases/common/matrix.hpp"
#include "phases/common/tensor.hpp"

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

// One head of N random queries and keys.
inline Example random_example(std::int64_t N, std::int64_t D, Distribution distribution = Distribution::Normal) {
  const auto tensor = [&](std::uint32_t stream) { return random_tensor<float>({1, 1, N, D}, 1, stream, distribution); };
  return {tensor(0), tensor(1), tensor(2), make_tensor<float>({1, 1, N, D}), {}};
}

// docs/data: 12 heads of 32 on 50 tokens (stored as fp16; fp32 holds them exactly).
inline Example sentence() {
  const auto load = [](const std::string& name) {
    const Tensor<half> stored = load_tensor<half>(std::string(FLASH_DATA_DIR) + "/minilm_" + name + ".npy");
    Tensor<float> t = make_tensor<float>(shape_of(stored));
    for (std::size_t i = 0; i < t.size(); ++i) t.data()[i] = to_float(stored.data()[i]);
    return t;
  };
  Example e{load("q"), load("k"), load("v"), {}, {}};
  e.o = make_tensor<float>(shape_of(e.q));
  return e;
}

// The sentence's 50 tokens; `##` continues the word before it.
inline std::vector<std::string> sentence_words() {
  const std::string path = std::string(FLASH_DATA_DIR) + "/minilm_tokens.txt";
  std::ifstream file(path);
  if (!file) refuse("file", path, "a file that can be read", "check FLASH_DATA_DIR");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word);) words.push_back(word);
  return words;
}

// Head h of batch entry 0 as a matrix, in place: [S, D].
inline Eigen::Map<const RowMajor<float>> head(const Tensor<float>& t, std::int64_t h) {
  return {view(t).head(0, h), view(t).S(), view(t).D()};
}

// S = Q Kᵀ · scale of head h, in fp32 or fp64: [Sq, Sk].
template <class Scalar>
RowMajor<Scalar> scores(const Example& e, std::int64_t h) {
  const Scalar scale = static_cast<Scalar>(1 / std::sqrt(static_cast<double>(e.q.shape(3))));
  return head(e.q, h).cast<Scalar>() * head(e.k, h).cast<Scalar>().transpose() * scale;
}

// softmax of each row in fp64; a row of -inf (no visible key) gives zeros. [Sq, Sk]
inline RowMajor<double> exact_softmax(const RowMajor<double>& S) {
  RowMajor<double> P = S;
  for (Eigen::Index i = 0; i < S.rows(); ++i) {
    const double m = S.cols() ? S.row(i).maxCoeff() : 0;
    for (Eigen::Index j = 0; j < S.cols(); ++j) P(i, j) = std::isinf(m) ? 0 : std::exp(S(i, j) - m);
    if (P.row(i).sum() > 0) P.row(i) /= P.row(i).sum();
  }
  return P;
}

// O of head h in fp64: [Sq, D].
inline RowMajor<double> exact_head(const Example& e, std::int64_t h) {
  return exact_softmax(scores<double>(e, h)) * head(e.v, h).cast<double>();
}

// ‖got - want‖ / ‖want‖ (Frobenius); NaN when `got` holds one, so compare with `error <= bar`.
template <class Got>
double relative_error(const Got& got, const RowMajor<double>& want) {
  return (got.template cast<double>() - want).norm() / want.norm();
}

// The larger of two errors; NaN counts as the largest of all and stays.
inline double worse(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? infinity : std::max(a, b);
}

// The worst head of e.o against fp64.
inline double worst_head(const Example& e) {
  double worst = 0;
  for (std::int64_t h = 0; h < view(e.o).H(); ++h) worst = worse(worst, relative_error(head(e.o, h), exact_head(e, h)));
  return worst;
}

}  // namespace flash
