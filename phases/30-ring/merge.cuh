// Phase 30: the merge on a GPU: merge.hpp's rule, a warp for a few rows. The last set of keys is merged and divided in
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

inline constexpr int kMergeRows = 4;  // of a warp, so that many bytes are on their way at once
struct RowJoin {
  std::int64_t number;  // of the row, among all heads'; -1: there is none
  RowSum row;
  Join join;
  const float *o, *part;
};
// Calls store(its, d, what becomes of its O from column d on) for each row.
template <int kWidth, class Store>
__device__ __forceinline__ void join_rows(const RowJoin (&all)[kMergeRows], int Dv, const Store& store) {
  for (int d = threadIdx.x % 32 * kWidth; d < Dv; d += 32 * kWidth) {
    Several<kWidth> x[kMergeRows];
#pragma unroll
    for (int i = 0; i < kMergeRows; ++i)
      if (all[i].number >= 0) x[i] = all[i].join.template join<kWidth>(all[i].o + d, all[i].part + d);
#pragma unroll
    for (int i = 0; i < kMergeRows; ++i)
      if (all[i].number >= 0) store(all[i], d, x[i]);
  }
}

// A warp merges rows of the set.
template <int kWidth>
__global__ void __launch_bounds__(32 * kMergeWarps) merge_rows(MergedRows to, SetRows set, std::int64_t heads) {
  const std::int64_t first = (blockIdx.x * std::int64_t{kMergeWarps} + threadIdx.x / 32) * kMergeRows;
  RowJoin all[kMergeRows];
#pragma unroll
  for (int i = 0; i < kMergeRows; ++i) {
    const std::int64_t r = first + i;
    RowJoin& its = all[i];
    its.number = r < heads * set.rows ? r / set.rows * to.S + set.first + r % set.rows : -1;
    if (its.number < 0) continue;
    its.row = merged_row(to, set, its.number, r, its.join);
    its.o = to.O + its.number * to.Dv, its.part = set.O + r * to.Dv;
  }
  __syncwarp();  // all lanes have read the rows' sums
  if (threadIdx.x % 32 == 0)
    for (const RowJoin& its : all)
      if (its.number >= 0)
        to.top[its.number] = its.row.top, to.sum[its.number] = its.row.sum, to.unit[its.number] = its.row.unit;
  join_rows<kWidth>(all, to.Dv, [&](const RowJoin& its, int d, Several<kWidth> x) {
    *reinterpret_cast<Several<kWidth>*>(to.O + its.number * to.Dv + d) = x;
  });
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

// A warp's rows: with the last set, if there is one, divided, rounded and written.
template <class T, int kWidth>
__global__ void __launch_bounds__(32 * kMergeWarps)
    finish_rows(MergedRows from, SetRows set, RowResults<T> to, std::int64_t heads, int H) {
  const std::int64_t first = (blockIdx.x * std::int64_t{kMergeWarps} + threadIdx.x / 32) * kMergeRows;
  RowJoin all[kMergeRows];
#pragma unroll
  for (int i = 0; i < kMergeRows; ++i) {
    RowJoin& its = all[i];
    its.number = first + i < heads * from.S ? first + i : -1;
    if (its.number < 0) continue;
    const std::int64_t in_set = its.number % from.S - set.first, r = its.number / from.S * set.rows + in_set;
    its.o = from.O + its.number * from.Dv, its.part = set.O + r * from.Dv;
    if (set.O && in_set >= 0 && in_set < set.rows) {
      its.row = merged_row(from, set, its.number, r, its.join);
    } else {
      its.row = {from.top[its.number], from.sum[its.number], from.unit[its.number]};
      its.join = {.first = its.row.sum == 0, .seen = false};
    }
  }
  join_rows<kWidth>(all, from.Dv, [&](const RowJoin& its, int d, Several<kWidth> x) {
    const int head = static_cast<int>(its.number / from.S), s = static_cast<int>(its.number % from.S);
    alignas(16) T rounded[kWidth];
    alignas(8) std::int16_t low[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float divided = its.row.sum == 0 ? 0 : nth<kWidth>(x, i) / its.row.sum;
      rounded[i] = round_to<T>(divided);
      low[i] = phase09::low_bits(divided, widen(rounded[i]));
    }
    store<kWidth>(to.O.head(head / H, head % H).data + s * to.O.stride + d, rounded);
    if (to.O_lo.data) store<kWidth>(to.O_lo.head(head / H, head % H).data + s * to.O_lo.stride + d, low);
  });
  if (threadIdx.x % 32 != 0) return;
  for (const RowJoin& its : all) {
    if (its.number < 0) continue;
    const float l = its.row.sum * its.row.unit;
    if (to.LSE) to.LSE[its.number] = l == 0 ? -INFINITY : __fadd_rn(__fmul_rn(its.row.top, 0.693147181f), logf(l));
    if (to.m) to.m[its.number] = l == 0 ? -INFINITY : its.row.top, to.l[its.number] = l;
  }
}
// #endregion

}  // namespace flash::phase30::inline FLASH_MACHINE
