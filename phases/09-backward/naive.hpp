// The backward pass as the derivation reads (docs/backward.md), in Eigen: P, dP and dS are whole matrices in HBM.
// First step of phase 09, as phase 01 is of the forward pass. In fp64 too, for the gradient check.
// Run it: ./flash tour 09     Test it: ./flash test 09
#pragma once
#include <bit>
#include <type_traits>

#include "phases/01-naive/attention.hpp"
#include "phases/09-backward/phase.hpp"

namespace flash::phase09 {

// Where δ_i = Σ_j P_ij dP_ij = Σ_d dO_id O_id comes from. On paper the two sums are equal.
enum class Delta {
  FromP,  // δ = rowsum(P ∘ dP): two matrices of N² numbers
  FromO,  // δ = rowsum(dO ∘ O) of the O that the problem brings, with its low-order bits if those were kept
};

// A matrix of T in HBM <-> a matrix of Scalar.
template <class Scalar, class T>
RowMajor<Scalar> wide(const Matrix<const T>& m) {
  RowMajor<Scalar> out(m.rows, m.cols);
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < m.cols; ++c)
      if constexpr (std::is_same_v<T, double>)
        out(r, c) = m.data[r * m.stride + c];
      else
        out(r, c) = to_float(m.data[r * m.stride + c]);
  return out;
}
template <class Scalar, class T>
void store(const RowMajor<Scalar>& from, const Matrix<T>& to) {
  for (std::int64_t r = 0; r < to.rows; ++r)
    for (std::int64_t c = 0; c < to.cols; ++c)
      if constexpr (std::is_same_v<T, double>)
        to.data[r * to.stride + c] = from(r, c);
      else
        to.data[r * to.stride + c] = from_float<T>(from(r, c));
}

// dQ, dK, dV for each of the B·H heads. Returns what it cost. Seven kernels, each reading its inputs once and writing
// its result once: S | P | dV | dP | dS | dQ | dK.
template <class T>
Ledger naive_backward(const GradientProblem<T>& p, Delta delta_from = Delta::FromP) {
  using Scalar = std::conditional_t<std::is_same_v<T, double>, double, float>;
  validate(p, features, delta_from == Delta::FromO);
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), heads = p.H();
  const Scalar scale = p.scale();
  return run_tasks(p.options.threads, p.B() * heads, p.options.sram_bytes, [&](Memory& memory, std::int64_t task) {
    const std::int64_t b = task / heads, h = task % heads;
    const auto matrix = [&](const char* name, const auto& view) {
      return memory.matrix(name, view.head(b, h), view.S(), D, view.stride[2]);
    };
    const auto Q_hbm = matrix("Q", p.q), K_hbm = matrix("K", p.k), V_hbm = matrix("V", p.v);
    const auto dO_hbm = matrix("dO", p.dout);
    const auto Q = wide<Scalar>(Q_hbm), dO = wide<Scalar>(dO_hbm);  // [Sq, D]
    const auto K = wide<Scalar>(K_hbm), V = wide<Scalar>(V_hbm);    // [Sk, D]

    // Forward again, as in phase 01: S = Q Kᵀ · scale, P = softmax(S). What a row does not see becomes -inf, then 0.
    RowMajor<Scalar> S = Q * K.transpose() * scale;  // [Sq, Sk]
    for (std::int64_t i = 0; i < Sq; ++i)
      S.row(i).tail(Sk - p.visible(i)).setConstant(-std::numeric_limits<Scalar>::infinity());
    const RowMajor<Scalar> P = phase01::safe_softmax(S);  // [Sq, Sk]

    RowMajor<Scalar> dP = RowMajor<Scalar>::Zero(Sq, Sk), dS = dP;
    RowMajor<Scalar> dQ = RowMajor<Scalar>::Zero(Sq, D), dK = RowMajor<Scalar>::Zero(Sk, D), dV = dK;
    // Rows that see the same keys go together: all of them, or under a mask one by one over the first n keys, so that
    // 0 · NaN never happens.
    const std::int64_t step = p.options.causal == Causal::None ? std::max<std::int64_t>(Sq, 1) : 1;
    for (std::int64_t i = 0; i < Sq; i += step) {
      const std::int64_t n = p.visible(i);
      const auto P_i = P.block(i, 0, step, n);                // [step, n]
      const auto dO_i = dO.middleRows(i, step);               // [step, D]
      auto dP_i = dP.block(i, 0, step, n);                    // [step, n]
      auto dS_i = dS.block(i, 0, step, n);                    // [step, n]
      dV.topRows(n).noalias() += P_i.transpose() * dO_i;      // dV = Pᵀ dO
      dP_i.noalias() = dO_i * V.topRows(n).transpose();       // dP = dO Vᵀ
      for (std::int64_t r = i; r < i + step && n > 0; ++r) {  // dS = P ∘ (dP − δ + dLSE)
        Scalar delta = (P.row(r).head(n).array() * dP.row(r).head(n).array()).sum();
        if (delta_from == Delta::FromO) {
          delta = 0;
          for (std::int64_t d = 0; d < D; ++d) {
            float o = to_float(p.o.row(b, h, r)[d]);
            const View<std::int16_t>& lo = p.kept.o_lo;
            if (lo.data) o = std::bit_cast<float>(std::bit_cast<std::int32_t>(o) + lo.row(b, h, r)[d]);
            delta += dO(r, d) * o;
          }
        }
        if (p.dlse) delta -= p.dlse[(b * heads + h) * Sq + r];
        dS.row(r).head(n) = P.row(r).head(n).array() * (dP.row(r).head(n).array() - delta);
      }
      dQ.middleRows(i, step).noalias() = dS_i * K.topRows(n) * scale;               // dQ = scale · dS K
      dK.topRows(n).noalias() += dS_i.transpose() * Q.middleRows(i, step) * scale;  // dK = scale · dSᵀ Q
    }
    const auto dQ_hbm = matrix("dQ", p.dq), dK_hbm = matrix("dK", p.dk), dV_hbm = matrix("dV", p.dv);
    store(dQ, dQ_hbm);
    store(dK, dK_hbm);
    store(dV, dV_hbm);

    // What the seven kernels read and write. P is read twice (dV, dS), dS twice (dQ, dK).
    const auto square = [&](const char* name, const RowMajor<Scalar>& m) {
      return memory.matrix(name, m.data(), Sq, Sk, Sk);
    };
    const auto reads = [&](const auto&... from) { (memory.count_read(from), ...); };
    const auto writes = [&](const auto& to) { memory.count_write(to); };
    const auto S_hbm = square("S", S), P_hbm = square("P", P), dP_hbm = square("dP", dP), dS_hbm = square("dS", dS);
    reads(Q_hbm, K_hbm), writes(S_hbm);
    reads(S_hbm), writes(P_hbm);
    reads(P_hbm, dO_hbm), writes(dV_hbm);
    reads(dO_hbm, V_hbm), writes(dP_hbm);
    reads(P_hbm, dP_hbm), writes(dS_hbm);
    reads(dS_hbm, K_hbm), writes(dQ_hbm);
    reads(dS_hbm, Q_hbm), writes(dK_hbm);
    for (int product = 0; product < 5; ++product) memory.count_matmul(Sq, Sk, D);
    memory.count_exps(Sq * Sk);
  });
}

}  // namespace flash::phase09
