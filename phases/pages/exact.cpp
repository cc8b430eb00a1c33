// exact.cpp: see exact.hpp. The formulas are those of docs/conventions.md and docs/backward.md.
// Use: linked with flash_common.
#include "phases/pages/exact.hpp"

#include <cmath>

namespace flash {
namespace {

// a · b. Whole matrices, a head's rows and transposes are one type here: Eigen compiles one product, not six.
using AnyMatrix = Eigen::Ref<const RowMajor<double>, 0, Eigen::OuterStride<>>;
RowMajor<double> product(const AnyMatrix& a, const AnyMatrix& b) {
  return a * b;
}

// S = Q Kᵀ · scale of a head, -inf where a row does not see a key: [Sq, Sk].
RowMajor<double> masked_scores(const ExactInput& in, std::int64_t head) {
  const auto K = in.k.middleRows(head * in.Sk, in.Sk);
  RowMajor<double> S = product(in.q.middleRows(head * in.Sq, in.Sq), K.transpose()) * in.scale;
  for (std::int64_t i = 0; i < in.Sq; ++i) S.row(i).tail(in.Sk - in.visible[i]).setConstant(-infinity);
  return S;
}

// f(head) for all heads, on all cores.
template <class F>
void for_each_head(const ExactInput& in, const F& f) {
  run_tasks(0, in.heads, 0, [&](Memory&, std::int64_t head) { f(head); });
}

}  // namespace

Exact exact_attention(const ExactInput& in) {
  Exact exact{RowMajor<double>::Zero(in.q.rows(), in.v.cols()), std::vector<double>(in.q.rows(), -infinity)};
  for_each_head(in, [&](std::int64_t head) {
    const RowMajor<double> S = masked_scores(in, head);
    for (std::int64_t i = 0; i < in.Sq; ++i) {
      if (in.visible[i] == 0) continue;
      const double m = S.row(i).maxCoeff();
      exact.lse[head * in.Sq + i] = m + std::log((S.row(i).array() - m).exp().sum());
    }
    exact.o.middleRows(head * in.Sq, in.Sq) = product(exact_softmax(S), in.v.middleRows(head * in.Sk, in.Sk));
  });
  return exact;
}

ExactGradients exact_gradients(const ExactInput& in, const RowMajor<double>& dout, const float* dlse) {
  ExactGradients exact{in.q, in.k, in.v};  // their shapes
  for_each_head(in, [&](std::int64_t head) {
    const auto of_rows = [&](auto& x) { return x.middleRows(head * in.Sq, in.Sq); };
    const auto of_keys = [&](auto& x) { return x.middleRows(head * in.Sk, in.Sk); };
    const RowMajor<double> P = exact_softmax(masked_scores(in, head));              // [Sq, Sk]
    const RowMajor<double> dP = product(of_rows(dout), of_keys(in.v).transpose());  // [Sq, Sk]
    Eigen::VectorXd delta = (P.array() * dP.array()).rowwise().sum();               // [Sq]
    for (std::int64_t i = 0; dlse && i < in.Sq; ++i) delta[i] -= dlse[head * in.Sq + i];
    const RowMajor<double> dS = P.array() * (dP.colwise() - delta).array();  // [Sq, Sk]
    of_rows(exact.dq) = in.scale * product(dS, of_keys(in.k));
    of_keys(exact.dk) = in.scale * product(dS.transpose(), of_rows(in.q));
    of_keys(exact.dv) = product(P.transpose(), of_rows(dout));
  });
  return exact;
}

}  // namespace flash
