// Phase 30: a row whose keys come a set at a time (phase 02's rule): how its sums take one more set.
// Use: RowSum row; float keep = 0, weight = 0;  if (row.add(m, l, keep, weight)) o = keep * o + weight * o_of_the_set;
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

namespace flash::phase30 {

// #region merge
// Each set leaves O, and m and l in base 2, or LSE, which is m of a set whose l is 1. Its O has the weight
// l · 2^(m - top). The division comes at the end, once. Weights are counted in l of the row's first set that counts,
// so that sets of equal weight, and a set alone, lose nothing.
struct RowSum {
  float top = -std::numeric_limits<float>::infinity();  // the largest m so far
  float sum = 0, unit = 0;                              // Σ weight; l of the set that weights are counted in

  // How much of O so far is kept, and how much of the set's comes in. False: the row saw none of these keys.
  bool add(float m, float l, float& keep, float& weight) {
    if (l == 0) return false;
    const float m_new = std::max(top, m);
    keep = std::exp2(top - m_new);
    if (keep * sum == 0) unit = l;  // nothing is left of the sets before
    weight = l / unit * std::exp2(m - m_new);
    top = m_new, sum = keep * sum + weight;
    return true;
  }
  float l() const { return sum * unit; }
};
// #endregion

}  // namespace flash::phase30
