// Phase 01: attention as the textbook writes it, O = softmax(QKᵀ·scale) V, with S and P as whole matrices.
// First of all phases: three matrix expressions in Eigen. The ledger shows what they cost: O(N²) bytes of HBM.
// Run it: ./flash tour 01     Test it: ./flash test 01
#pragma once
#include <cmath>

#include "phases/01-naive/phase.hpp"
#include "phases/common/matrix.hpp"
#include "phases/common/problem.hpp"

namespace flash::phase01 {

// #region plain-softmax
// P_ij = exp(S_ij) / Σ_k exp(S_ik), row by row: the definition. fp32's exp overflows at S_ij > 88.72: NaN.
template <class Scalar>
RowMajor<Scalar> plain_softmax(const RowMajor<Scalar>& S /*[Sq, Sk]*/) {
  RowMajor<Scalar> P = S.array().exp();
  for (Eigen::Index i = 0; i < P.rows(); ++i) P.row(i) /= P.row(i).sum();
  return P;
}
// #endregion

// #region safe-softmax
// The same numbers without overflow: exp(S_ij - m_i) / Σ_k exp(S_ik - m_i) with m_i = max_j S_ij.
// A row of -inf (no visible key) gives zeros, not NaN.
template <class Scalar>
RowMajor<Scalar> safe_softmax(const RowMajor<Scalar>& S /*[Sq, Sk]*/) {
  RowMajor<Scalar> P = RowMajor<Scalar>::Zero(S.rows(), S.cols());
  if (S.cols() == 0) return P;
  for (Eigen::Index i = 0; i < P.rows(); ++i) {
    const Scalar m = S.row(i).maxCoeff();
    if (m == -std::numeric_limits<Scalar>::infinity()) continue;
    P.row(i) = (S.row(i).array() - m).exp();
    P.row(i) /= P.row(i).sum();
  }
  return P;
}
// #endregion

// #region heads
enum class Softmax { Plain, Safe };

// O = softmax(Q Kᵀ · scale) V for each of the B·H heads. Returns what it cost.
// Three kernels, each reading its inputs once and writing its result once, as an ideal matrix library would:
//   S = Q Kᵀ · scale   |   P = softmax(S)   |   O = P V
template <class T>
Ledger attention(const Problem<T>& p, Softmax softmax = Softmax::Safe) {
  validate(p, features);
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), heads = p.H();
  return run_tasks(p.options.threads, p.B() * heads, p.options.sram_bytes, [&](Memory& memory, std::int64_t task) {
    const std::int64_t b = task / heads, h = task % heads;
    const auto Q = memory.matrix("Q", p.q.head(b, h), Sq, D, p.q.stride[2]);  // [Sq, D]
    const auto K = memory.matrix("K", p.k.head(b, h), Sk, D, p.k.stride[2]);  // [Sk, D]
    const auto V = memory.matrix("V", p.v.head(b, h), Sk, D, p.v.stride[2]);  // [Sk, D]
    const auto O = memory.matrix("O", p.o.head(b, h), Sq, D, p.o.stride[2]);  // [Sq, D]
                                                                              // #endregion

    // #region scores
    // S = Q Kᵀ · scale; a key that row i may not see gets -inf, whatever it holds.
    RowMajor<float> S_ij = to_eigen(Q) * to_eigen(K).transpose() * p.scale();  // [Sq, Sk]
    for (std::int64_t i = 0; i < Sq; ++i) S_ij.row(i).tail(Sk - p.visible(i)).setConstant(-infinity);
    const auto S = memory.matrix("S", S_ij.data(), Sq, Sk, Sk);
    memory.count_read(Q);
    memory.count_read(K);
    memory.count_write(S);
    // #endregion

    // #region weights
    // P = softmax(S)
    RowMajor<float> P_ij = softmax == Softmax::Safe ? safe_softmax(S_ij) : plain_softmax(S_ij);  // [Sq, Sk]
    const auto P = memory.matrix("P", P_ij.data(), Sq, Sk, Sk);
    memory.count_read(S);
    memory.count_write(P);
    // #endregion

    // #region output
    // O = P V; under a mask row by row over visible keys only, so that 0 · NaN never happens.
    const RowMajor<float> V_j = to_eigen(V);
    RowMajor<float> O_i(Sq, D);
    if (p.options.causal == Causal::None)
      O_i.noalias() = P_ij * V_j;
    else
      for (std::int64_t i = 0; i < Sq; ++i)
        O_i.row(i).noalias() = P_ij.row(i).head(p.visible(i)) * V_j.topRows(p.visible(i));
    for (std::int64_t i = 0; i < Sq; ++i)
      for (std::int64_t d = 0; d < D; ++d) O.data[i * O.stride + d] = from_float<T>(O_i(i, d));
    memory.count_read(P);
    memory.count_read(V);
    memory.count_write(O);
    // #endregion

    // #region flops
    memory.count_matmul(Sq, Sk, D);
    memory.count_matmul(Sq, D, Sk);
    memory.count_exps(Sq * Sk);
  });
}
// #endregion

}  // namespace flash::phase01
