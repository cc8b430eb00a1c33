// quick.cuh: softmax and modifier in one go, for what is often asked for alone: phases 18 and 19 take it for tiles of
// which nothing is hidden. Where its exponent or its maximum needs more care, the modifier goes its way alone.
// Use: return quick_softmax<kCarry>(s, rows, alpha, c, modifier, i, j, before_exponentials);
#pragma once
#include "phases/18-diet/maximum.cuh"

namespace flash::inline FLASH_MACHINE {

// #region quick
// Such a modifier makes of q·k, in place, what grows with the score: lean(). A row's score is bent(x) + offset, and its
// exponent c · bent(x) - base is exponent(x, c, base). Not all tiles are such: lean() or holds() say so.
template <class M>
concept HasLean = requires(const M& m, float (&s)[4], float (&offset)[2]) {
  m.template lean<false>(s, offset, 0, 0);
};

// The largest of each row of the lane, and for all the one that is furthest below zero, by integers as phase 18 has it;
// among negative numbers the order of their bits is turned, so that `low` is a maximum, too.
template <int N>
__device__ __forceinline__ void integer_extremes(const float (&s)[N], int (&top)[2], unsigned& low) {
  const auto bits = [&](int i) { return __float_as_int(s[i]); };
  int tops[2][2] = {{bits(0), bits(1)}, {bits(2), bits(3)}};
  unsigned lows[2] = {};
#pragma unroll
  for (int i = 0; i < N; i += 8)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int& here = tops[k / 2][k % 2];
      here = __vimax3_s32(here, bits(i + k), bits(i + k + 4));
      lows[k % 2] = __vimax3_u32(lows[k % 2], bits(i + k), bits(i + k + 4));
    }
  top[0] = max(tops[0][0], tops[0][1]), top[1] = max(tops[1][0], tops[1][1]);
  low = max(lows[0], lows[1]);
}

// False: nothing has been done but that S is now what the softmax is of.
template <bool kCarry, int N, class M, class F>
__device__ __forceinline__ bool quick_softmax(float (&s)[N], CarriedRows& rows, float (&alpha)[2], float c,
                                              const M& modifier, int i, int j, const F& before_exponentials) {
  float offset[2], m[2], base[2];
  if (!modifier.template lean<false>(s, offset, i, j)) {
    modifier.template apply<false>(
        s, [](int, float, float) {}, 0, 0, i, j);
    return false;
  }
  int top[2];
  unsigned low;
  integer_extremes(s, top, low);
  bool quick = modifier.holds(top, low);
  float most[2] = {__int_as_float(top[0]), __int_as_float(top[1])};
  if (__any_sync(0xffffffffu, min(top[0], top[1]) < 0)) {  // integers have the order of negative numbers turned
    most[0] = most[1] = -INFINITY;
    grow(most, s);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    m[r] = fmaxf(rows.m[r], row_max(modifier.bent(most[r]) + offset[r])), base[r] = c * m[r];
    quick &= !is_extreme(base[r]);
  }
  if (!__all_sync(0xffffffffu, quick)) {
    modifier.finish(s, offset);
    return false;
  }
  before_exponentials();
  if (!kCarry) rows.base[0] = c * rows.m[0], rows.base[1] = c * rows.m[1];
  const float shifted[2] = {fmaf(-c, offset[0], base[0]), fmaf(-c, offset[1], base[1])};
  float sum[2][2] = {};
#pragma unroll
  for (int e = 0; e < N; ++e) {
    s[e] = ex2_approx_ftz(modifier.exponent(s[e], c, shifted[row_of(e)]));
    sum[row_of(e)][e % 2] += s[e];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    alpha[r] = ex2_approx_ftz(rows.base[r] - base[r]);
    rows.l[r] = fmaf(rows.l[r], alpha[r], sum[r][0] + sum[r][1]), rows.m[r] = m[r], rows.base[r] = base[r];
  }
  return true;
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
