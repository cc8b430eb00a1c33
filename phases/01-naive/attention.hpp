// Phase 01: attention as the textbook writes it, O = softmax(QKᵀ·scale) V, with S and P as whole matrices.
// The first phase: three steps, each from HBM and back to HBM. The ledger shows what they cost: O(N²) bytes.
// Run it: ./flash tour 01     Test it: ./flash test 01
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "phases/01-naive/phase.hpp"
#include "phases/interface/matrix.hpp"
#include "phases/interface/validate.hpp"

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

enum class Softmax { Plain, Safe };
// #endregion

// #region heads
// O = softmax(Q Kᵀ · scale) V for each of the B·H heads. Returns what it cost.
// Three steps, like three calls to a matrix library: S = Q Kᵀ · scale   |   P = softmax(S)   |   O = P V
template <class T>
Ledger attention(const Problem<T>& p, Softmax softmax = Softmax::Safe) {
  validate(p, phase);
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), heads = p.H();
  const auto [Br, Bc] = choose_blocks(p.options, Sq, D);
  const auto task = [&, Br = Br, Bc = Bc](Memory& memory, std::int64_t t) {
    const std::int64_t b = t / heads, h = t % heads;
    const auto Q = memory.matrix("Q", p.q.head(b, h), Sq, D, p.q.stride[2]);           // [Sq, D]
    const auto K = memory.matrix("K", p.k.head(b, h), Sk, D, p.k.stride[2]);           // [Sk, D]
    const auto V = memory.matrix("V", p.v.head(b, h), Sk, D, p.v.stride[2]);           // [Sk, D]
    const auto O = memory.matrix("O", p.o.head(b, h), Sq, D, p.o.stride[2]);           // [Sq, D]
    std::vector<float> s(static_cast<std::size_t>(Sq * Sk)), probabilities(s.size());  // S and P in HBM: [Sq, Sk]
    const auto S = memory.matrix("S", s.data(), Sq, Sk, Sk), P = memory.matrix("P", probabilities.data(), Sq, Sk, Sk);
    // #endregion

    // #region scores
    // S = Q Kᵀ · scale; a key that row i may not see gets -inf, whatever it holds.
    {
      Tile Q_i = memory.tile("Q_i", Br, D), K_j = memory.tile("K_j", Bc, D), S_ij = memory.tile("S_ij", Br, Bc);
      for (std::int64_t i = 0; i < Sq; i += Br) {
        S_ij.rows = memory.load(Q_i, Q, i);
        for (std::int64_t j = 0; j < Sk; j += Bc) {
          S_ij.cols = memory.load(K_j, K, j);
          auto tile = mat(S_ij);  // [rows, keys]
          product(memory, tile, mat(Q_i), mat(K_j).transpose());
          tile *= p.scale();
          for (std::int64_t r = 0; r < S_ij.rows; ++r) {
            const std::int64_t n = std::clamp<std::int64_t>(p.visible(i + r).end - j, 0, S_ij.cols);
            tile.row(r).tail(S_ij.cols - n).setConstant(-infinity);
          }
          memory.store(S_ij, S.columns(j, S_ij.cols), i);
        }
      }
    }
    // #endregion

    // #region softmax
    // P = softmax(S), a row at a time.
    {
      Tile row = memory.tile("row of S", 1, Sk);
      for (std::int64_t i = 0; i < Sq; ++i) {
        memory.load(row, S, i);
        mat(row) = softmax == Softmax::Safe ? safe_softmax<float>(mat(row)) : plain_softmax<float>(mat(row));
        memory.count_exps(Sk);
        memory.store(row, P, i);
      }
    }
    // #endregion

    // #region output
    // O = P V; under a mask, row by row over the visible keys only, so that 0 · NaN never happens.
    Tile P_ij = memory.tile("P_ij", Br, Bc), V_j = memory.tile("V_j", Bc, D), O_i = memory.tile("O_i", Br, D);
    for (std::int64_t i = 0; i < Sq; i += Br) {
      O_i.rows = std::min(Br, Sq - i);
      mat(O_i).setZero();
      for (std::int64_t j = 0; j < Sk; j += Bc) {
        P_ij.cols = memory.load(V_j, V, j);
        memory.load(P_ij, P.columns(j, P_ij.cols), i);
        if (p.visible(i).end >= j + P_ij.cols) {  // the first row sees all of these keys, so all rows do
          add_product(memory, mat(O_i), mat(P_ij), mat(V_j));
          continue;
        }
        for (std::int64_t r = 0; r < O_i.rows; ++r) {
          const std::int64_t n = std::clamp<std::int64_t>(p.visible(i + r).end - j, 0, P_ij.cols);
          add_product(memory, mat(O_i).row(r), mat(P_ij).row(r).head(n), mat(V_j).topRows(n));
        }
      }
      memory.store(O_i, O, i);
    }
    // #endregion
    // #region run-tasks
  };
  return run_tasks(p.options.threads, p.B() * heads, p.options.sram_bytes, task);
}
// #endregion

}  // namespace flash::phase01
