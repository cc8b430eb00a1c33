// rows.cuh: a warp's product of 16 rows as one of its lanes holds it: which number belongs to which row and column, and
// what is done by rows. The products of mma.m16n8k16 and of wgmma lie alike, so phases 10 to 19 read by these words.
// Use: float s[Bc / 2]; hide(s, seen); grow(m, s); m[r] = row_max(m[r]).
#pragma once
#include "phases/interface/device.cuh"

namespace flash::inline FLASH_MACHINE {

// #region layout
// A product of 16 rows and 2 N columns lies in the N registers of each of 32 lanes. With g = lane / 4 and t = lane % 4:
//     element   0    1      2      3       4       5         6       7       8 …
//     row       g    g    g + 8  g + 8     g       g       g + 8   g + 8     g …
//     column   2t  2t + 1  2t    2t + 1  2t + 8  2t + 9    2t + 8  2t + 9  2t + 16 …
// So a lane has numbers of two rows, 8 apart, and a row lies in the four lanes of one g.
// Which of its two rows, and how far to the right of column 2t:
constexpr int row_of(int i) {
  return i / 2 % 2;
}
constexpr int column_of(int i) {
  return i / 4 * 8 + i % 2;
}

// Of these registers the four that one mma.m16n8k16 adds to: columns 8 n … 8 n + 7. PTX calls them the fragment C.
using Accumulators = float[4];
template <int N>
__device__ Accumulators& c_fragment(float (&s)[N], int n) {
  return reinterpret_cast<Accumulators&>(s[4 * n]);
}
// #endregion

// #region hide
// -inf for what a row does not see, by selection (whatever was there, NaN too, is gone); `seen`: how many columns, from
// the lane's first one on, its two rows see. What is seen is multiplied by `factor`.
template <int N>
__device__ void hide(float (&s)[N], const int (&seen)[2], float factor = 1) {
#pragma unroll
  for (int i = 0; i < N; ++i) s[i] = column_of(i) >= seen[row_of(i)] ? -INFINITY : s[i] * factor;
}
// #endregion

// #region four-lanes
// The lane's two rows: m becomes the maximum of itself and of the lane's columns.
template <int N>
__device__ void grow(float (&m)[2], const float (&s)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) m[row_of(i)] = fmaxf(m[row_of(i)], fmaxf(s[i], s[i + 1]));
}

// Of the four lanes that share a row: the maximum, the sum.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
// #endregion

// #region rescale
// Each row is multiplied by its own factor.
template <int N>
__device__ void rescale(float (&o)[N], const float (&alpha)[2]) {
#pragma unroll
  for (int i = 0; i < N; ++i) o[i] *= alpha[row_of(i)];
}
// #endregion

// #region round-p
// P, rounded to T, as the left operand of the next product: of 16 x 16 it wants registers of two neighbours each, rows
// g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8 (the fragment A). That is the order which they are in.
template <class T, int N>
__device__ void round_p(unsigned (&p)[N / 8][4], const float (&s)[N]) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) p[i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
}
// #endregion

// #region log-sum
// LSE = log Σ exp(s) = ln 2 · m + ln l, with m in base 2. A row that saw no key: -inf + -inf = -inf.
__device__ inline float log_sum(float m, float l) {
  return fmaf(m, 0.693147181f, logf(l));
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
