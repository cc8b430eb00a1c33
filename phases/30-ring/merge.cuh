// Phase 30: the merge on a GPU: merge.hpp's rule, a warp for each row. The last set of keys is merged and divided in
// one kernel, and the first leaves its O where the sum is to be: two sets cost two reads of O in fp32 and no write.
// Use: merge_rows<4><<<…>>>(sums, set, heads);  finish_rows<T, 4><<<…>>>(…);  phases/ring/gpu.cu
#pragma once
#include <type_traits>

#include "phases/09-backward/forward.cuh"
#include "phases/interface/device.cuh"

namespace flash::phase30::inline FLASH_MACHINE {

// #region merge
inline constexpr int kMergeWarps = 4;  // of a block

struct MergedRows {
  float *O, *top, *sum, *unit;  // [B·H·S, Dv], [B·H·S]
  std::int64_t S;
  int Dv;
};
// What a call has left of a set of keys, for rows first … first + rows - 1 of each head. Without l: m is LSE.
struct SetRows {
  const float *O, *m, *l;  // [B·H·rows, Dv], [B·H·rows]; O null: there is no set
  std::int64_t first, rows;
};

struct RowSum {
  float top, sum, unit;

  // How much of O so far is kept, and how much of the set's comes in.
  __device__ bool add(float m, float l, float& keep, float& weight) {
    if (l == 0) return false;
    const float m_new = fmaxf(top, m);
    keep = exp2f(top - m_new);
    if (keep * sum == 0) unit = l;
    weight = __fmul_rn(l / unit, exp2f(m - m_new));
    top = m_new, sum = __fadd_rn(__fmul_rn(keep, sum), weight);
    return true;
  }
};

// Four numbers of a row, or one.
template <int kWidth>
using Several = std::conditional_t<kWidth == 4, float4, float>;
template <int kWidth>
__device__ __forceinline__ float& nth(Several<kWidth>& several, int i) {
  return reinterpret_cast<float*>(&several)[i];
}

// How O of a row and of the set become one: keep · O + weight · O of the set.
struct Join {
  float keep = 1, weight = 0;
  bool first, seen;  // nothing was there before, not even in memory; the set has something for the row

  template <int kWidth>
  __device__ Several<kWidth> join(const float* o, const float* part) const {
    Several<kWidth> sum{}, more{};
    if (!first) sum = *reinterpret_cast<const Several<kWidth>*>(o);
    if (!seen) return sum;
    more = *reinterpret_cast<const Several<kWidth>*>(part);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float kept = first ? 0.0f : __fmul_rn(keep, nth<kWidth>(sum, i));
      nth<kWidth>(sum, i) = __fadd_rn(kept, __fmul_rn(weight, nth<kWidth>(more, i)));
    }
    return sum;
  }
};
// The sums of row `number` with those of the set's row r.
__device__ inline RowSum merged_row(const MergedRows& to, const SetRows& set, std::int64_t number, std::int64_t r,
                                    Join& join) {
  RowSum row = {to.top[number], to.sum[number], to.unit[number]};
  join.first = row.sum == 0;
  if (join.first) row.top = -INFINITY;
  const float m = set.l ? set.m[r] : set.m[r] * 1.44269504f, l = set.l ? set.l[r] : float(m != -INFINITY);
  join.seen = row.add(m, l, join.keep, join.weight);
  return row;
}
// #endregion

// #region kernels
// The first set has left its O where the sum is: a thread for each row takes its numbers.
__global__ void __launch_bounds__(256) begin_rows(MergedRows to, SetRows set, std::int64_t rows) {
  const std::int64_t r = blockIdx.x * std::int64_t{256} + threadIdx.x;
  if (r >= rows) return;
  Join join;
  const RowSum row = merged_row(to, set, r, r, join);
  to.top[r] = row.top, to.sum[r] = row.sum, to.unit[r] = row.unit;
}

// A warp merges one row of the set.
template <int kWidth>
__global__ void __launch_bounds__(32 * kMergeWarps) merge_rows(MergedRows to, SetRows set, std::int64_t heads) {
  const std::int64_t r = blockIdx.x * std::int64_t{kMergeWarps} + threadIdx.x / 32;
  if (r >= heads * set.rows) return;
  const std::int64_t number = r / set.rows * to.S + set.first + r % set.rows;
  const int lane = threadIdx.x % 32;
  Join join;
  const RowSum row = merged_row(to, set, number, r, join);
  __syncwarp();  // all lanes have read the row's sums
  if (lane == 0) to.top[number] = row.top, to.sum[number] = row.sum, to.unit[number] = row.unit;
  float* o = to.O + number * to.Dv;
  const float* part = set.O + r * to.Dv;
  for (int d = lane * kWidth; d < to.Dv; d += 32 * kWidth)
    *reinterpret_cast<Several<kWidth>*>(o + d) = join.join<kWidth>(o + d, part + d);
}

// What the call on this rank was asked for; null where it was not.
template <class T>
struct RowResults {
  Heads<T> O;
  Heads<std::int16_t> O_lo;
  float *LSE, *m, *l;  // [B·H·S]
};

// Four numbers of 2 or 4 bytes at once, or one.
template <int kWidth, class T>
__device__ __forceinline__ void store(T* to, const T (&numbers)[kWidth]) {
  if constexpr (kWidth == 4) {
    using Word = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
    *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(numbers);
  } else {
    *to = numbers[0];
  }
}

// A warp for each row: with the last set, if there is one, divided, rounded and written.
template <class T, int kWidth>
__global__ void __launch_bounds__(32 * kMergeWarps)
    finish_rows(MergedRows from, SetRows set, RowResults<T> to, std::int64_t heads, int H) {
  const std::int64_t number = blockIdx.x * std::int64_t{kMergeWarps} + threadIdx.x / 32;
  if (number >= heads * from.S) return;
  const std::int64_t head = number / from.S, s = number % from.S, i = s - set.first;
  const int lane = threadIdx.x % 32;
  RowSum row = {from.top[number], from.sum[number], from.unit[number]};
  Join join{.first = row.sum == 0, .seen = false};
  const std::int64_t r = head * set.rows + i;
  const bool in_set = set.O && i >= 0 && i < set.rows;
  if (in_set) row = merged_row(from, set, number, r, join);
  const float *o = from.O + number * from.Dv, *part = set.O + r * from.Dv;
  const bool own = set.O == from.O;  // the only set: its O is there already
  T* O = to.O.head(head / H, head % H).data + s * to.O.stride;
  std::int16_t* O_lo = to.O_lo.data ? to.O_lo.head(head / H, head % H).data + s * to.O_lo.stride : nullptr;
  for (int d = lane * kWidth; d < from.Dv; d += 32 * kWidth) {
    Several<kWidth> x{};
    if (row.sum != 0) x = own ? *reinterpret_cast<const Several<kWidth>*>(o + d) : join.join<kWidth>(o + d, part + d);
    alignas(16) T rounded[kWidth];
    alignas(8) std::int16_t low[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float divided = row.sum == 0 ? 0 : nth<kWidth>(x, i) / row.sum;
      rounded[i] = round_to<T>(divided);
      low[i] = phase09::low_bits(divided, widen(rounded[i]));
    }
    store<kWidth>(O + d, rounded);
    if (O_lo) store<kWidth>(O_lo + d, low);
  }
  if (lane != 0) return;
  const float l = row.sum * row.unit;
  if (to.LSE) to.LSE[number] = l == 0 ? -INFINITY : __fadd_rn(__fmul_rn(row.top, 0.693147181f), logf(l));
  if (to.m) to.m[number] = l == 0 ? -INFINITY : row.top, to.l[number] = l;
}
// #endregion

}  // namespace flash::phase30::inline FLASH_MACHINE
