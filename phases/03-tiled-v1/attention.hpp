// Phase 03: FlashAttention-1, Algorithm 1 (Dao et al., arXiv:2205.14135, page 5): keys arrive in tiles.
// New since 02: a K/V tile stays in SRAM while all Q tiles pass by; O, l and m live in HBM and are re-normalised there.
// Run it: ./flash tour 03     Test it: ./flash test 03
#pragma once
#include <cmath>
#include <vector>

#include "phases/03-tiled-v1/phase.hpp"
#include "phases/03-tiled-v1/softmax_row.hpp"
#include "phases/interface/matrix.hpp"
#include "phases/interface/validate.hpp"

namespace flash::phase03 {

// #region no-key
// A row whose scores are all -inf has m = -inf, and -inf - -inf would be NaN: subtract 0 instead.
inline float finite_or_zero(float m) {
  return m == -infinity ? 0 : m;
}
// #endregion

// #region state-in-hbm
// O = softmax(Q Kᵀ · scale) V. Line numbers are those of Algorithm 1.
template <class T>
Ledger attention(const Problem<T>& p) {
  validate(p, phase);
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), heads = p.H();
  const auto [Br, Bc] = choose_blocks(p.options, D);
  return run_tasks(p.options.threads, p.B() * heads, p.options.sram_bytes, [&](Memory& memory, std::int64_t task) {
    const std::int64_t b = task / heads, h = task % heads;
    // 2: O = 0, l = 0, m = -inf in HBM. O stays fp32 between the passes; the last pass rounds it to the output's type.
    std::vector<float> o(static_cast<std::size_t>(Sq * D)), l(static_cast<std::size_t>(Sq)), m(l.size(), -infinity);
    const auto Q = memory.matrix("Q", p.q.head(b, h), Sq, D, p.q.stride[2]);      // [Sq, D]
    const auto K = memory.matrix("K", p.k.head(b, h), Sk, D, p.k.stride[2]);      // [Sk, D]
    const auto V = memory.matrix("V", p.v.head(b, h), Sk, D, p.v.stride[2]);      // [Sk, D]
    const auto O_out = memory.matrix("O", p.o.head(b, h), Sq, D, p.o.stride[2]);  // [Sq, D]
    const auto O = memory.matrix("O", o.data(), Sq, D, D);                        // [Sq, D], fp32
    const auto L = memory.matrix("l", l.data(), Sq, 1, 1), M = memory.matrix("m", m.data(), Sq, 1, 1);
    memory.count_write(O);
    memory.count_write(L);
    memory.count_write(M);
    // #endregion
    // #region tiles-on-chip
    Tile Q_i = memory.tile("Q_i", Br, D), O_i = memory.tile("O_i", Br, D);
    Tile K_j = memory.tile("K_j", Bc, D), V_j = memory.tile("V_j", Bc, D), S_ij = memory.tile("S_ij", Br, Bc);
    Tile l_i = memory.tile("l_i", Br, 1), m_i = memory.tile("m_i", Br, 1);
    if (Sk == 0) {
      for (std::int64_t i = 0; i < Sq; i += Br) memory.load(O_i, O, i), memory.store(O_i, O_out, i);
      return;
    }
    // #endregion

    // #region two-loops
    for (std::int64_t j = 0; j < Sk; j += Bc) {  // 5: K and V outside …
      const bool last = j + Bc >= Sk;
      memory.load(K_j, K, j);
      memory.load(V_j, V, j);
      for (std::int64_t i = 0; i < Sq; i += Br) {  // 7: … Q inside: O, l and m come and go once per K/V tile
        memory.load(Q_i, Q, i);
        memory.load(O_i, O, i);
        memory.load(l_i, L, i);
        memory.load(m_i, M, i);
        S_ij.rows = Q_i.rows;
        const auto keys = K_j.rows;
        auto S = mat(S_ij).leftCols(keys);  // [rows of Q_i, keys]
                                            // #endregion

        // #region online-softmax
        product(memory, S, mat(Q_i), mat(K_j).transpose());  // 9
        for (std::int64_t r = 0; r < Q_i.rows; ++r) {
          float &l_r = l_i.data()[r], &m_r = m_i.data()[r];
          // 10: m̃, P̃, l̃ of this tile alone; scaled after the sum: equal sums stay equal in any order of adding
          const float m_tile = scale_and_max(S.row(r).data(), keys, p.scale());
          const float l_tile = exp_minus(S.row(r).data(), keys, finite_or_zero(m_tile));
          const float m_new = std::max(m_r, m_tile);  // 11
          const float alpha = std::exp(m_r - finite_or_zero(m_new)), beta = std::exp(m_tile - finite_or_zero(m_new));
          const float l_new = alpha * l_r + beta * l_tile;
          const float inverse = l_new == 0 ? 0 : 1 / l_new;
          mat(O_i).row(r) *= l_r * alpha * inverse;  // 12: O is kept divided by l, so it is multiplied back each time
          S.row(r) *= beta * inverse;
          l_r = l_new;  // 13
          m_r = m_new;
          memory.show("m", i + r, m_r), memory.show("l", i + r, l_r), memory.show("alpha", i + r, alpha);
        }
        add_product(memory, mat(O_i), S, mat(V_j));  // 12
        // #endregion
        // #region count-and-store
        memory.count_exps(Q_i.rows * (keys + 2));
        memory.count_rescales(2 * Q_i.rows);

        if (last)
          memory.store(O_i, O_out, i);
        else
          memory.store(O_i, O, i);
        memory.store(l_i, L, i);
        memory.store(m_i, M, i);
      }
    }
  });
}
// #endregion

}  // namespace flash::phase03
