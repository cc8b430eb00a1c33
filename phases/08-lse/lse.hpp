// lse.hpp: what can be done with LSE: converters for callers that use base 2, and merging partial results.
// The state is phase 02's; any split of the keys, computed anywhere, is put together by its merge.
// Use: phase02::merge(phase08::partial(o_a, D, lse_a), phase08::partial(o_b, D, lse_b)).output()
#pragma once
#include "phases/02-online-softmax/attention.hpp"

namespace flash::phase08 {

// #region base-2
// Triton's tutorial kernel, FlashInfer and others hand out log2 Σ exp(s); ours is the natural logarithm.
inline float lse_to_base2(float natural) {
  return natural * 1.44269504f;  // log2 e
}
inline float lse_from_base2(float base2) {
  return base2 * 0.693147181f;  // ln 2
}
// #endregion

// #region partial
// A row of O and its LSE as phase 02's state, with m = LSE and l = 1: softmax over any set of keys can be cut into
// disjoint sets, computed anywhere, and put together with phase02::merge.
template <class T>
phase02::State partial(const T* o_row /*[D]*/, std::int64_t D, float lse) {
  phase02::State state{.m = lse, .l = lse == -infinity ? 0.0f : 1.0f, .o = Eigen::VectorXf(D)};
  for (std::int64_t d = 0; d < D; ++d) state.o[d] = to_float(o_row[d]);
  return state;
}
// #endregion

}  // namespace flash::phase08
