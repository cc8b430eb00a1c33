// exact.cpp: see exact.hpp. The formulas are those of docs/conventions.md and docs/backward.md.
// Use: linked with flash_common.
#include "phases/pages/exact.hpp"

#include <cmath>

namespace flash {
namespace {

// S = Q Kᵀ · scale of a head, -inf where a row does not see a key: [Sq, Sk].
RowMajor<double> masked_scores(const ExactInput& in, std::int64_t head) {
  RowMajor<double> S = in.q.middleRows(head * in.Sq, in.Sq) * in.k.middleRows(head * in.Sk, in.Sk).transpose();
  S *= in.scale;
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
    exact.o.middleRows(head * in.Sq, in.Sq) = exact_softmax(S) * in.v.middleRows(head * in.Sk, in.Sk);
  });
  return exact;
}

ExactGradients exact_gradients(const ExactInput& in, const RowMajor<double>& dout, const float* dlse) {
  ExactGradients exact{in.q, in.k, in.v};  // their shapes
  for_each_head(in, [&](std::int64_t head) {
    const auto of_rows = [&](auto& x) { return x.middleRows(head * in.Sq, in.Sq); };
    const auto of_keys = [&](auto& x) { return x.middleRows(head * in.Sk, in.Sk); };
    const RowMajor<double> P = exact_softmax(masked_scores(in, head));  // [Sq, Sk]
    RowMajor<double> dS = of_rows(dout) * of_keys(in.v).transpose();    // dP = dO Vᵀ
    Eigen::VectorXd delta = (P.array() * dS.array()).rowwise().sum();   // δ = rowsum(P ∘ dP)
    for (std::int64_t i = 0; dlse && i < in.Sq; ++i) delta[i] -= dlse[head * in.Sq + i];
    dS = P.array() * (dS.colwise() - delta).array();  // P ∘ (dP − δ + dLSE)
    of_rows(exact.dq) = in.scale * (dS * of_keys(in.k));
    of_keys(exact.dk) = in.scale * (dS.transpose() * of_rows(in.q));
    of_keys(exact.dv) = P.transpose() * of_rows(dout);
  });
  return exact;
}

}  // namespace flash
