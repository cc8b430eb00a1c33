// example.cpp: see example.hpp. Compiled once, since every notebook uses it.
// Data and words: docs/data.
// Use: linked with flash_common.
#include "phases/pages/example.hpp"

#include <cmath>
#include <fstream>
#include <limits>

namespace flash {

Example random_example(std::int64_t N, std::int64_t D, Distribution distribution) {
  const auto tensor = [&](std::uint32_t stream) { return random_tensor<float>({1, 1, N, D}, 1, stream, distribution); };
  return {tensor(0), tensor(1), tensor(2), make_tensor<float>({1, 1, N, D}), {}};
}

template <class T, class From>
static Tensor<T> converted(const Tensor<From>& from) {
  Tensor<T> t = make_tensor<T>(shape_of(from));
  for (std::size_t i = 0; i < t.size(); ++i) t.data()[i] = from_float<T>(to_float(from.data()[i]));
  return t;
}

template <class T>
Rounded<T>::Rounded(const Example& e)
    : q(converted<T>(e.q)), k(converted<T>(e.k)), v(converted<T>(e.v)), o(make_tensor<T>(shape_of(e.q))) {
  o.fill(from_float<T>(std::numeric_limits<float>::quiet_NaN()));
  lse.assign(q.size() / q.shape(3), std::numeric_limits<float>::quiet_NaN());
}

template <class T>
Example Rounded<T>::widened() const {
  return {converted<float>(q), converted<float>(k), converted<float>(v), converted<float>(o), lse};
}

template struct Rounded<float>;
template struct Rounded<half>;
template struct Rounded<bfloat16>;

Example sentence() {
  const auto load = [](const std::string& name) {
    return converted<float>(load_tensor<half>(std::string(FLASH_DATA_DIR) + "/minilm_" + name + ".npy"));
  };
  Example e{load("q"), load("k"), load("v"), {}, {}};
  e.o = make_tensor<float>(shape_of(e.q));
  return e;
}

std::vector<std::string> sentence_words() {
  const std::string path = std::string(FLASH_DATA_DIR) + "/minilm_tokens.txt";
  std::ifstream file(path);
  if (!file) refuse("file", path, "a file that can be read", "check FLASH_DATA_DIR");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word);) words.push_back(word);
  return words;
}

template <class Scalar>
RowMajor<Scalar> scores(const Example& e, std::int64_t h) {
  const Scalar scale = static_cast<Scalar>(1 / std::sqrt(static_cast<double>(e.q.shape(3))));
  return head(e.q, h).cast<Scalar>() * head(e.k, h).cast<Scalar>().transpose() * scale;
}

template RowMajor<float> scores<float>(const Example&, std::int64_t);
template RowMajor<double> scores<double>(const Example&, std::int64_t);

RowMajor<double> exact_softmax(const RowMajor<double>& S) {
  RowMajor<double> P = S;
  for (Eigen::Index i = 0; i < S.rows(); ++i) {
    const double m = S.cols() ? S.row(i).maxCoeff() : 0;
    for (Eigen::Index j = 0; j < S.cols(); ++j) P(i, j) = std::isinf(m) ? 0 : std::exp(S(i, j) - m);
    if (P.row(i).sum() > 0) P.row(i) /= P.row(i).sum();
  }
  return P;
}

RowMajor<double> exact_head(const Example& e, std::int64_t h) {
  return exact_softmax(scores<double>(e, h)) * head(e.v, h).cast<double>();
}

double relative_error_of(const RowMajor<double>& got, const RowMajor<double>& want) {
  return (got - want).norm() / want.norm();
}

double worse(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? infinity : std::max(a, b);
}

double worst_head(const Example& e) {
  double worst = 0;
  for (std::int64_t h = 0; h < view(e.o).H(); ++h) worst = worse(worst, relative_error(head(e.o, h), exact_head(e, h)));
  return worst;
}

}  // namespace flash
