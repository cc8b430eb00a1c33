// Phase 02: softmax in one pass. A row's whole past fits in the state (m, l, o); keys may come one by one.
// New since 01: S and P are gone. `merge` joins the states of any two sets of keys: the rule behind every later phase.
// Run it: ./flash tour 02     Test it: ./flash test 02
#pragma once
#include <cmath>

#include "phases/02-online-softmax/phase.hpp"
#include "phases/interface/matrix.hpp"
#include "phases/interface/validate.hpp"

namespace flash::phase02 {

// #region state
// What one row knows after a set of keys J (Milakov & Gimelshein, arXiv:1805.02867, Algorithm 3, plus the output):
//   m = max_{j in J} s_j      l = Σ_J exp(s_j - m)      o = Σ_J exp(s_j - m) v_j   (not yet divided by l)
// The default is the empty set: the identity of merge.
struct State {
  float m = -infinity;
  float l = 0;
  Eigen::VectorXf o;  // [D]; empty stands for zeros

  // The row of O; a row that saw no key is 0.
  Eigen::VectorXf output() const { return l == 0 ? o : Eigen::VectorXf(o / l); }
  // log Σ exp(s_j), natural; -inf when no key was seen.
  float lse() const { return l == 0 ? -infinity : m + std::log(l); }
};
// #endregion

// #region add-key
// Adds one key with score s and value v [D] to the state: one pass, no second look at earlier keys.
template <class Value>
void add_key(State& state, float s, const Value& v) {
  if (s == -infinity) return;  // a masked key: selected away, not multiplied by 0
  if (state.o.size() == 0) state.o = Eigen::VectorXf::Zero(v.size());
  const float m_new = std::max(state.m, s);
  const float alpha = std::exp(state.m - m_new), p = std::exp(s - m_new);  // no key yet: m = -inf, alpha = 0
  state.l = alpha * state.l + p;
  state.o = alpha * state.o + p * v;
  state.m = m_new;
}
// #endregion

// #region merge
// The state of A ∪ B from the states of two disjoint sets of keys. Associative and commutative up to rounding.
inline State merge(const State& a, const State& b) {
  if (a.m == -infinity) return b;  // of two empty sets m - m would be -inf - -inf: NaN
  if (b.m == -infinity) return a;
  const float m = std::max(a.m, b.m), alpha = std::exp(a.m - m), beta = std::exp(b.m - m);
  return {m, alpha * a.l + beta * b.l, alpha * a.o + beta * b.o};
}
// #endregion

// #region rows
// O and LSE row by row: each query row streams all its keys once. No S, no P, but K and V pass once per row.
template <class T>
Ledger attention(const Problem<T>& p) {
  validate(p, phase);
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), heads = p.H();
  return run_tasks(p.options.threads, p.B() * heads, p.options.sram_bytes, [&](Memory& memory, std::int64_t task) {
    const std::int64_t b = task / heads, h = task % heads;
    const auto Q = memory.matrix("Q", p.q.head(b, h), Sq, D, p.q.stride[2]);  // [Sq, D]
    const auto K = memory.matrix("K", p.k.head(b, h), Sk, D, p.k.stride[2]);  // [Sk, D]
    const auto V = memory.matrix("V", p.v.head(b, h), Sk, D, p.v.stride[2]);  // [Sk, D]
    const auto O = memory.matrix("O", p.o.head(b, h), Sq, D, p.o.stride[2]);  // [Sq, D]
    Tile q_i = memory.tile("q_i", 1, D), k_j = memory.tile("k_j", 1, D), v_j = memory.tile("v_j", 1, D);
    Tile o_i = memory.tile("o_i", 1, D), lse_i = memory.tile("lse_i", 1, 1);
    // #endregion

    // #region stream-keys
    for (std::int64_t i = 0; i < Sq; ++i) {
      memory.load(q_i, Q, i);
      State state;
      state.o = Eigen::VectorXf::Zero(D);
      for (std::int64_t j = 0; j < p.visible(i).end; ++j) {
        memory.load(k_j, K, j);
        memory.load(v_j, V, j);
        add_key(state, mat(q_i).row(0).dot(mat(k_j).row(0)) * p.scale(), mat(v_j).row(0).transpose());
        memory.show("m", i, state.m), memory.show("l", i, state.l);
        memory.count_matmul(2, 1, D);  // q·k and p·v
        memory.count_exps(2);          // p and the rescaling factor
        memory.count_rescales(1);
      }
      // #endregion

      // #region write-row
      mat(o_i).row(0) = state.output();
      memory.count_rescales(1);  // the division
      memory.store(o_i, O, i);
      if (p.lse) {
        mat(lse_i)(0, 0) = state.lse();
        memory.store(lse_i, memory.matrix("LSE", p.lse + task * Sq, Sq, 1, 1), i);  // [Sq]
      }
    }
  });
}
// #endregion

}  // namespace flash::phase02
