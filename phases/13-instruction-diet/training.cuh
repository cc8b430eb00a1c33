// training.cuh: what leaves a kernel beside O and LSE where a backward pass is to follow (phase 09, docs/backward.md),
// and O in fp32, which partial results need. Elements come in pairs, as they stand side by side in accumulators.
// Words of phases 13, 18 and 19. Use: attention<T, D, Br, Bc, true>, which launch() picks where keeps(p).
#pragma once
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/interface/kernel_phase.cuh"

namespace flash::inline FLASH_MACHINE {

// #region outputs: what leaves a kernel
// What is not wanted is null. m is in base 2: P = exp2(scale_log2 · S - m) / l. l sums P as it was multiplied by V,
// that is rounded, so that O is a true mean of V; LSE comes from the sum of P itself.
template <class T, template <class> class Tensor>
struct OutputsOf {
  Tensor<T> O;                // [Sq, D], rounded to T; not stored where O is wanted in fp32:
  Tensor<float> O_wide;       // [Sq, D]
  Tensor<std::int16_t> O_lo;  // [Sq, D]: what rounding took from O
  float *LSE, *m, *l;         // [Sq]
};
template <class T>
using Outputs = OutputsOf<T, Heads>;  // of all heads: [B, H, Sq, D] and [B, H, Sq]

template <class T>
__device__ OutputsOf<T, Head> outputs_of_head(const Outputs<T>& all, int head, int H) {
  const auto rows = [&](float* of) { return of ? of + head * all.O.rows : nullptr; };
  return {all.O.head(head / H, head % H),
          all.O_wide.head(head / H, head % H),
          all.O_lo.head(head / H, head % H),
          rows(all.LSE),
          rows(all.m),
          rows(all.l)};
}
// The rows of the head's sequence, where sequences have lengths of their own (phase 27).
template <class T, class Variant>
__device__ __forceinline__ OutputsOf<T, Head> outputs_of_head(const Outputs<T>& all, int head, int H,
                                                              const Variant& band) {
  if constexpr (Variant::lengths)
    return outputs_of_head(band.outputs_alone(all, head, H), head, H);
  else
    return outputs_of_head(all, head, H);
}
// #endregion

// #region training: sums of what was rounded, and what rounding took
// Two rounded numbers, as pack() left them, in fp32.
template <class T>
__device__ float2 unpack(unsigned pair) {
  const auto half = [](unsigned bits) {
    const auto number = static_cast<std::uint16_t>(bits);
    return widen(*reinterpret_cast<const T*>(&number));
  };
  return make_float2(half(pair & 0xffff), half(pair >> 16));
}
template <class T>
__device__ float sum_of(unsigned pair) {
  const float2 both = unpack<T>(pair);
  return both.x + both.y;
}

// What rounding to T takes from two numbers, 16 bits each: the distance between the two bit patterns, as in phase 09.
template <class T>
__device__ unsigned low_bits(float left, float right) {
  const float2 rounded = unpack<T>(pack<T>(left, right));
  const auto distance = [](float exact, float near) {  // NaN: may be wide
    const std::int64_t wide = std::int64_t{__float_as_int(exact)} - __float_as_int(near);
    return static_cast<unsigned>(min(max(wide, std::int64_t{-32768}), std::int64_t{32767})) & 0xffff;
  };
  return distance(left, rounded.x) | distance(right, rounded.y) << 16;
}

// A lane's part of 16 rows of O in fp32, times `factor`: the four lanes of a row store 8 columns, a whole sector.
// `row`: the lane's first of O. 8 bytes at once where they may be.
template <int N>
__device__ void store_wide(const float (&o)[N], const float (&factor)[2], Head<float> O /*[Sq, D]*/, std::int64_t row) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const int r = row_of(i), column = column_of(i) + lane_column();
    float* to = O.data + (row + 8 * r) * O.stride + column;
    if (row + 8 * r >= O.rows) continue;
    if (column + 1 < O.cols && reinterpret_cast<std::uintptr_t>(to) % sizeof(float2) == 0)
      *reinterpret_cast<float2*>(to) = make_float2(o[i] * factor[r], o[i + 1] * factor[r]);
    else
      for (int e = 0; e < 2; ++e)
        if (column + e < O.cols) to[e] = o[i + e] * factor[r];
  }
}
// #endregion

// #region hopper: the same words for 64 rows of a warpgroup
// The sum of P as it was rounded goes on with a K/V tile, behind round_p. In phases 18 and 19.
template <class T, int N>
__device__ void sum_rounded(float (&l)[2], const unsigned (&p)[N][4], const float (&alpha)[2]) {
  float sum[2] = {};
#pragma unroll
  for (int i = 0; i < N * 4; ++i) sum[i % 2] += sum_of<T>(p[i / 4][i % 4]);
#pragma unroll
  for (int r = 0; r < 2; ++r) l[r] = fmaf(l[r], alpha[r], sum[r]);
}

// A lane's part of 16 rows: m and l go out, and what rounding takes from O. `factor` becomes what O must be
// multiplied by. All columns are there or none of two neighbours: TMA wants rows of 16 bytes and multiples.
template <class T, int N, class Rows>
__device__ void finish_kept(const Rows& rows, const float (&o)[N], float (&factor)[2], const OutputsOf<T, Head>& out,
                            int row, float c) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float l = row_sum(rows.rounded_l[r]);
    factor[r] = l == 0 ? 0.0f : 1 / l;
    const int mine = row + 8 * r;
    if (out.m && threadIdx.x % 4 == 0 && mine < out.O.rows) out.m[mine] = rows.m[r] * c, out.l[mine] = l;
  }
  if (!out.O_lo.data) return;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const int r = row_of(i), at = row + 8 * r, column = column_of(i) + lane_column();
    auto* to = reinterpret_cast<std::uint16_t*>(out.O_lo.data) + at * out.O_lo.stride + column;
    if (at < out.O_lo.rows && column < out.O_lo.cols) store2(to, low_bits<T>(o[i] * factor[r], o[i + 1] * factor[r]));
  }
}
// #endregion

// #region keeps: the host's side
// Is anything wanted beside O and LSE? That is a kernel of its own, so that others are as fast as before.
template <class T>
bool keeps(const DeviceProblem<T>& p) {
  return p.m || p.O_lo.data;
}
template <class T>
Outputs<T> outputs_of(const DeviceProblem<T>& p) {
  return {p.O, p.O_wide, p.O_lo, p.LSE, p.m, p.l};
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
