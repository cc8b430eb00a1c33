// softmax.cuh: online softmax (phase 02) of the scores that a lane has of its two rows, in words of phases 14 to 19.
// Which element belongs to which row and column: phases/10-tensor-cores/rows.cuh.
// Use: softmax(s, rows, alpha, c); rescale(o, alpha); … finish_rows(rows, factor, LSE, row, Sq, c);
#pragma once
#include "phases/10-tensor-cores/rows.cuh"

namespace flash::inline FLASH_MACHINE {

// #region softmax: S becomes P, and m, l go on
// The state of online softmax of the lane's two rows; l is of the lane's own columns until the end.
struct Rows {
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {};
};

// c > 0 of P = exp2(c · S - c · m): scale = 0 becomes tiny, since -inf · 0 is NaN.
__device__ inline float factor_of(float scale_log2) {
  return fmaxf(fabsf(scale_log2), 1e-30f);
}
// A negative scale turns the signs of S: hide() multiplies by this.
__device__ inline float sign_of(float scale_log2) {
  return scale_log2 < 0 ? -1.0f : 1.0f;
}

// The rows' maxima, of what was seen before too. Even and odd columns by themselves: two chains instead of a long one.
template <int N>
__device__ void maxima(const float (&s)[N], const Rows& rows, float (&m)[2]) {
  float top[2][2] = {{rows.m[0], s[0]}, {rows.m[1], s[2]}};
#pragma unroll
  for (int i = 0; i < N; ++i) top[row_of(i)][i % 2] = fmaxf(top[row_of(i)][i % 2], s[i]);
  m[0] = row_max(fmaxf(top[0][0], top[0][1])), m[1] = row_max(fmaxf(top[1][0], top[1][1]));
}

// Is c · m too large for what follows? Up to 512 it is rounded by 2^-16 at most, which P shows less than its own
// rounding. NaN and infinity are not too large: they are lost anyway, and must not change the way in which other rows
// are rounded.
__device__ inline bool is_extreme(float base) {
  return fabsf(base) > 512 && base < INFINITY;
}

// Where c · m is large its rounding would show in P, and where no key was seen -inf - -inf is NaN: there m is
// subtracted first, and P = exp2(c · S - 0).
template <int N>
__device__ void subtract(float (&s)[N], Rows& rows, const float (&m)[2]) {
  const float m_safe[2] = {m[0] == -INFINITY ? 0.0f : m[0], m[1] == -INFINITY ? 0.0f : m[1]};
#pragma unroll
  for (int i = 0; i < N; ++i) s[i] -= m_safe[row_of(i)];
  rows.m[0] -= m_safe[0], rows.m[1] -= m_safe[1];
}

// P = exp2(c · S - base), in place; m, l go on. alpha: by what O must be multiplied. old: the base that l and O are
// relative to, c · m of the tile before, rounded as it was then: so alpha is exactly 1 where the maximum stays. Were it
// not, l and O would drift with each tile.
template <int N>
__device__ void exponentials(float (&s)[N], Rows& rows, float (&alpha)[2], float c, const float (&m)[2],
                             const float (&base)[2], const float (&old)[2]) {
  float sum[2][2] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    s[i] = ex2_approx_ftz(fmaf(s[i], c, -base[row_of(i)]));
    sum[row_of(i)][i % 2] += s[i];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    alpha[r] = ex2_approx_ftz(old[r] - base[r]);
    rows.l[r] = fmaf(rows.l[r], alpha[r], sum[r][0] + sum[r][1]), rows.m[r] = m[r];
  }
}

template <int N>
__device__ void softmax(float (&s)[N], Rows& rows, float (&alpha)[2], float c) {
  float m[2];
  maxima(s, rows, m);
  float base[2] = {c * m[0], c * m[1]};
  if (__any_sync(0xffffffffu, is_extreme(base[0]) || is_extreme(base[1]))) {
    subtract(s, rows, m);
    base[0] = base[1] = 0;
  }
  exponentials(s, rows, alpha, c, m, base, {c * rows.m[0], c * rows.m[1]});
}
// #endregion

// #region finish: what is left to do for a row: 1 / l, and LSE
// What O must be multiplied by in the end; a row that saw no key has l = 0 and stays 0. LSE = log Σ exp(s) goes out. Of
// the four lanes that share two rows each divides for one, the even ones for the first: a division is long.
__device__ inline void finish_rows(const Rows& rows, float (&factor)[2], float* LSE, int row, int Sq, float c) {
  const int lane = threadIdx.x % 32, t = lane % 4, r = t % 2;
  const float sums[2] = {row_sum(rows.l[0]), row_sum(rows.l[1])};
  const float l = r == 0 ? sums[0] : sums[1], m = r == 0 ? rows.m[0] : rows.m[1];
  const float inverse = l == 0 ? 0.0f : 1 / l;
  trace_value("l", row + 8 * r, l);
  factor[0] = __shfl_sync(0xffffffffu, inverse, lane - t), factor[1] = __shfl_sync(0xffffffffu, inverse, lane - t + 1);
  if (LSE && t < 2 && row + 8 * r < Sq) LSE[row + 8 * r] = log_sum(m * c, l);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
