// naive.cpp: see naive.hpp. Compiled once for each type, since tests, notebook, tour and benchmarks all use it.
// The steps are docs/backward.md's, in its order; the ledger counts them as seven kernels.
// Run it: ./flash tour 09     Test it: ./flash test 09
#include "phases/09-backward/naive.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "phases/01-naive/attention.hpp"
#include "phases/interface/validate.hpp"

namespace flash::phase09 {
namespace {

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

// to += a · b. Whole matrices, parts and transposes are one type here: Eigen compiles one product, not five.
template <class Scalar>
void add_product(Eigen::Ref<RowMajor<Scalar>, 0, Eigen::OuterStride<>> to,
                 const Eigen::Ref<const RowMajor<Scalar>, 0, Eigen::OuterStride<>>& a,
                 const Eigen::Ref<const RowMajor<Scalar>, 0, Eigen::OuterStride<>>& b) {
  to.noalias() += a * b;
}

// One head's S, P, dP, dS [Sq, Sk] and dQ [Sq, D], dK, dV [Sk, D]: whole matrices, as the derivation has them.
template <class Scalar>
struct Head {
  RowMajor<Scalar> S, P, dP, dS, dQ, dK, dV;

  // visible[i]: how many keys row i sees. delta_from_o: null, or δ [Sq]. dlse: null or [Sq].
  Head(const RowMajor<Scalar>& Q, const RowMajor<Scalar>& K, const RowMajor<Scalar>& V, const RowMajor<Scalar>& dO,
       Scalar scale, const std::vector<std::int64_t>& visible, const std::vector<Scalar>* delta_from_o,
       const float* dlse) {
    const Eigen::Index Sq = Q.rows(), Sk = K.rows(), D = Q.cols();
    // Forward again, as in phase 01: S = Q Kᵀ · scale, P = softmax(S). What a row does not see becomes -inf, then 0.
    S = RowMajor<Scalar>::Zero(Sq, Sk);
    add_product<Scalar>(S, Q, K.transpose());
    S *= scale;
    for (Eigen::Index i = 0; i < Sq; ++i)
      S.row(i).tail(Sk - visible[i]).setConstant(-std::numeric_limits<Scalar>::infinity());
    P = phase01::safe_softmax(S);

    dP = dS = RowMajor<Scalar>::Zero(Sq, Sk);
    dQ = RowMajor<Scalar>::Zero(Sq, D);
    dK = dV = RowMajor<Scalar>::Zero(Sk, D);
    // Rows that see the same keys go together: all of them, or under a mask one by one over the first n keys, so that
    // 0 · NaN never happens.
    const bool masked = std::any_of(visible.begin(), visible.end(), [&](std::int64_t n) { return n < Sk; });
    const Eigen::Index step = masked ? 1 : std::max<Eigen::Index>(Sq, 1);
    for (Eigen::Index i = 0; i < Sq; i += step) {
      const Eigen::Index n = visible[i];
      const auto P_i = P.block(i, 0, step, n);                    // [step, n]
      const auto dO_i = dO.middleRows(i, step);                   // [step, D]
      auto dP_i = dP.block(i, 0, step, n);                        // [step, n]
      auto dS_i = dS.block(i, 0, step, n);                        // [step, n]
      add_product<Scalar>(dV.topRows(n), P_i.transpose(), dO_i);  // dV = Pᵀ dO
      add_product<Scalar>(dP_i, dO_i, V.topRows(n).transpose());  // dP = dO Vᵀ
      for (Eigen::Index r = i; r < i + step && n > 0; ++r) {      // dS = P ∘ (dP − δ + dLSE)
        Scalar delta = delta_from_o ? (*delta_from_o)[r] : (P.row(r).head(n).array() * dP.row(r).head(n).array()).sum();
        if (dlse) delta -= dlse[r];
        dS.row(r).head(n) = P.row(r).head(n).array() * (dP.row(r).head(n).array() - delta);
      }
      add_product<Scalar>(dQ.middleRows(i, step), dS_i, K.topRows(n));              // dQ = scale · dS K
      add_product<Scalar>(dK.topRows(n), dS_i.transpose(), Q.middleRows(i, step));  // dK = scale · dSᵀ Q
    }
    dQ *= scale, dK *= scale;
  }
};

// δ_i = Σ_d dO_id O_id of the O that the problem brings, with its low-order bits if they were kept.
template <class Scalar, class T>
std::vector<Scalar> delta_of_o(const GradientProblem<T>& p, std::int64_t b, std::int64_t h,
                               const RowMajor<Scalar>& dO) {
  std::vector<Scalar> delta;
  const View<std::int16_t>& lo = p.kept.o_lo;
  for (std::int64_t i = 0; i < p.Sq(); ++i) {
    Scalar sum = 0;
    for (std::int64_t d = 0; d < p.D(); ++d) {
      float o = to_float(p.o.row(b, h, i)[d]);
      if (lo.data) o = std::bit_cast<float>(std::bit_cast<std::int32_t>(o) + lo.row(b, h, i)[d]);
      sum += dO(i, d) * o;
    }
    delta.push_back(sum);
  }
  return delta;
}

}  // namespace

template <class T>
Ledger naive_backward(const GradientProblem<T>& p, Delta delta_from) {
  using Scalar = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const float no_lse = 0;
  AnyProblem asked(p);  // without δ from O neither O nor LSE is looked at
  if (delta_from != Delta::FromO) asked.o = asked.dq, asked.lse = row_view(&no_lse, asked.q);
  validate(asked, phase);
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), heads = p.H();
  std::vector<std::int64_t> visible;
  for (std::int64_t i = 0; i < Sq; ++i) visible.push_back(p.visible(i).end);
  return run_tasks(p.options.threads, p.B() * heads, p.options.sram_bytes, [&](Memory& memory, std::int64_t task) {
    const std::int64_t b = task / heads, h = task % heads;
    const auto matrix = [&](const char* name, const auto& view) {
      return memory.matrix(name, view.head(b, h), view.S(), D, view.stride[2]);
    };
    const auto Q_hbm = matrix("Q", p.q), K_hbm = matrix("K", p.k), V_hbm = matrix("V", p.v);
    const auto dO_hbm = matrix("dO", p.dout);
    const auto dO = wide<Scalar>(dO_hbm);  // [Sq, D]
    const std::vector<Scalar> delta = delta_from == Delta::FromO ? delta_of_o(p, b, h, dO) : std::vector<Scalar>();
    const Head<Scalar> head(wide<Scalar>(Q_hbm), wide<Scalar>(K_hbm), wide<Scalar>(V_hbm), dO, p.scale(), visible,
                            delta_from == Delta::FromO ? &delta : nullptr, p.dlse ? p.dlse + task * Sq : nullptr);
    const auto dQ_hbm = matrix("dQ", p.dq), dK_hbm = matrix("dK", p.dk), dV_hbm = matrix("dV", p.dv);
    store(head.dQ, dQ_hbm);
    store(head.dK, dK_hbm);
    store(head.dV, dV_hbm);

    // What the seven kernels read and write. P is read twice (dV, dS), dS twice (dQ, dK).
    const auto square = [&](const char* name, const RowMajor<Scalar>& m) {
      return memory.matrix(name, m.data(), Sq, Sk, Sk);
    };
    const auto reads = [&](const auto&... from) { (memory.count_read(from), ...); };
    const auto writes = [&](const auto& to) { memory.count_write(to); };
    const auto S = square("S", head.S), P = square("P", head.P), dP = square("dP", head.dP), dS = square("dS", head.dS);
    reads(Q_hbm, K_hbm), writes(S);
    reads(S), writes(P);
    reads(P, dO_hbm), writes(dV_hbm);
    reads(dO_hbm, V_hbm), writes(dP);
    reads(P, dP), writes(dS);
    reads(dS, K_hbm), writes(dQ_hbm);
    reads(dS, Q_hbm), writes(dK_hbm);
    for (int product = 0; product < 5; ++product) memory.count_matmul(Sq, Sk, D);
    memory.count_exps(Sq * Sk);
  });
}

template Ledger naive_backward(const GradientProblem<double>&, Delta);
template Ledger naive_backward(const GradientProblem<float>&, Delta);
template Ledger naive_backward(const GradientProblem<half>&, Delta);
template Ledger naive_backward(const GradientProblem<bfloat16>&, Delta);

}  // namespace flash::phase09
