// maximum.cuh: the softmax of phases 18 and 19, whose maximum is one of three integers. The rest of it is phase 14's.
// Where integers are of no use (a maximum below zero, or a large one) the warp goes phase 14's way.
// Use: integer_softmax(s, rows, alpha, c, [] {}); in place of softmax(s, rows, alpha, c)
#pragma once
#include "phases/14-tma-wgmma/softmax.cuh"

namespace flash::inline FLASH_MACHINE {

// #region maximum: of three integers
// Where all maxima are moderate and positive the bits of floats are ordered as integers (a smaller one of either sign
// changes nothing), and there is an instruction for the maximum of three.
template <int N>
__device__ void integer_maxima(const float (&s)[N], const Rows& rows, float (&m)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int top[2] = {__float_as_int(rows.m[r]), __float_as_int(s[2 * r])};
#pragma unroll
    for (int i = 2 * r; i < N; i += 8)
#pragma unroll
      for (int j = 0; j < 2; ++j) top[j] = __vimax3_s32(top[j], __float_as_int(s[i + j]), __float_as_int(s[i + 4 + j]));
    int bits = max(top[0], top[1]);
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, 1));
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, 2));
    m[r] = __int_as_float(bits);
  }
}

// The state with c · m beside m: two registers in place of two multiplications for each tile. And where a backward pass
// is to follow, the sum of P as it was rounded.
struct CarriedRows : Rows {
  float base[2] = {-INFINITY, -INFINITY}, rounded_l[2] = {};
};

// As in phase 14 but for the maxima; and before the exponentials something else may be done. kCarry: c · m is carried,
// not worked out again; the bits are the same.
template <bool kCarry = true, int N, class F>
__device__ void integer_softmax(float (&s)[N], CarriedRows& rows, float (&alpha)[2], float c,
                                const F& before_exponentials) {
  float m[2];
  integer_maxima(s, rows, m);
  float base[2] = {c * m[0], c * m[1]};
  if (__any_sync(0xffffffffu, is_extreme(base[0]) || is_extreme(base[1]) || fminf(base[0], base[1]) < 0)) {
    maxima(s, rows, m);
    subtract(s, rows, m);
    rows.base[0] = c * rows.m[0], rows.base[1] = c * rows.m[1];
    base[0] = base[1] = 0;
  }
  before_exponentials();
  if (!kCarry) rows.base[0] = c * rows.m[0], rows.base[1] = c * rows.m[1];
  exponentials(s, rows, alpha, c, m, base, rows.base);
  rows.base[0] = c * m[0], rows.base[1] = c * m[1];
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
