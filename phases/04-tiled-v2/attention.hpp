// Phase 04: FlashAttention-2, Algorithm 1 (Dao, arXiv:2307.08691, page 6): each Q tile is independent.
// New since 03: the loops change places. O, l, m stay on chip, one division at the end, LSE for free, threads.
// Run it: ./flash tour 04     Test it: ./flash test 04     Use it: find_package(flashphases), see tests/consumer
#pragma once
#include <cmath>

#include "phases/03-tiled-v1/softmax_row.hpp"
#include "phases/04-tiled-v2/phase.hpp"
#include "phases/interface/matrix.hpp"
#include "phases/interface/validate.hpp"

namespace flash::phase04 {

// #region q-tile-outside
// O = softmax(Q Kᵀ · scale) V and LSE. One task per (b, h, Q tile); line numbers are those of Algorithm 1.
template <class T>
Ledger attention(const Problem<T>& p) {
  validate(p, phase);
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), heads = p.H();
  const auto [Br, Bc] = choose_blocks(p.options, D);
  const std::int64_t Tr = (Sq + Br - 1) / Br;
  const auto task = [&, Br = Br, Bc = Bc](Memory& memory, std::int64_t t) {
    const std::int64_t b = t / Tr / heads, h = t / Tr % heads, i = t % Tr * Br;  // 3: Q outside
    const auto Q = memory.matrix("Q", p.q.head(b, h), Sq, D, p.q.stride[2]);     // [Sq, D]
    const auto K = memory.matrix("K", p.k.head(b, h), Sk, D, p.k.stride[2]);     // [Sk, D]
    const auto V = memory.matrix("V", p.v.head(b, h), Sk, D, p.v.stride[2]);     // [Sk, D]
    const auto O = memory.matrix("O", p.o.head(b, h), Sq, D, p.o.stride[2]);     // [Sq, D]
                                                                                 // #endregion
    // #region state-on-chip
    Tile Q_i = memory.tile("Q_i", Br, D), O_i = memory.tile("O_i", Br, D);
    Tile K_j = memory.tile("K_j", Bc, D), V_j = memory.tile("V_j", Bc, D), S_ij = memory.tile("S_ij", Br, Bc);
    Tile l_i = memory.tile("l_i", Br, 1), m_i = memory.tile("m_i", Br, 1);
    const std::int64_t rows = memory.load(Q_i, Q, i);  // 4
    S_ij.rows = O_i.rows = l_i.rows = m_i.rows = rows;
    mat(O_i).setZero();  // 5: O = 0, l = 0, m = -inf, all on chip
    mat(l_i).setZero();
    mat(m_i).setConstant(-infinity);
    // #endregion

    // #region kv-inside
    for (std::int64_t j = 0; j < p.visible(i + rows - 1).end; j += Bc) {  // 6: K, V inside, as far as the last row sees
      memory.load(K_j, K, j);                                             // 7
      const std::int64_t keys = K_j.rows;
      const bool full = p.visible(i).end >= j + keys;  // the first row sees the whole tile, so all rows do
      auto S = mat(S_ij).leftCols(keys);               // [rows, keys]
                                                       // #endregion

      // #region scores
      product(memory, S, mat(Q_i), mat(K_j).transpose());  // 8
      memory.load(V_j, V, j);                              // 7; not before V is needed, since caches are small
      // #endregion
      // #region online-softmax
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t n = std::min(p.visible(i + r).end - j, keys);  // keys of this tile that row r sees
        if (n <= 0) continue;
        float &l = l_i.data()[r], &m = m_i.data()[r];
        auto P = S.row(r).head(n);
        // 9; scaled after the sum: equal sums stay equal in any order of adding
        const float m_new = std::max(m, scale_and_max(P.data(), n, p.scale()));
        const float m_safe = m_new == -infinity ? 0 : m_new;  // -inf - -inf would be NaN
        const float alpha = std::exp(m - m_safe);
        l = alpha * l + exp_minus(P.data(), n, m_safe);  // P = exp(S - m), and its sum
        m = m_new;
        memory.show("m", i + r, m), memory.show("l", i + r, l), memory.show("alpha", i + r, alpha);
        mat(O_i).row(r) *= alpha;                                                 // 10: un-normalised O, rescaled
        if (!full) add_product(memory, mat(O_i).row(r), P, mat(V_j).topRows(n));  // visible keys only: no 0 · NaN
        memory.count_exps(n + 1);
        memory.count_rescales(1);
      }
      // #endregion
      // #region output
      if (full) add_product(memory, mat(O_i), S, mat(V_j));  // 10
    }
    // #endregion

    // #region finish
    for (std::int64_t r = 0; r < rows; ++r) {  // 12: one division; a row that saw no key stays 0
      if (l_i.data()[r] != 0) mat(O_i).row(r) /= l_i.data()[r];
      m_i.data()[r] += std::log(l_i.data()[r]);  // 13: LSE = m + log l; -inf when no key was seen
    }
    memory.count_rescales(rows);
    memory.store(O_i, O, i);                                                                        // 14
    if (p.lse) memory.store(m_i, memory.matrix("LSE", p.lse + (b * heads + h) * Sq, Sq, 1, 1), i);  // 15
  };
  return run_tasks(p.options.threads, p.B() * heads * Tr, p.options.sram_bytes, task);
}
// #endregion

}  // namespace flash::phase04
