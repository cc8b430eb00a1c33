// Phase 30: the merge on a GPU: merge.hpp's rule, a lane for a row's numbers, a warp for its O. The first set leaves O
// where the sum is to be; the last is merged and divided in one kernel: two sets cost two reads of O in fp32, no write.
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
  std::int64_t number = -1, r = 0;  // of the row among all heads', or there is none; in the set
  float keep = 1, weight = 0, sum = 0;
  bool first = true, seen = false;  // nothing was there before, not even in memory; the set has something for the row
};
// The sums of row `number` with those of the set's row r.
__device__ inline RowSum merged_row(const MergedRows& to, const SetRows& set, std::int64_t number, std::int64_t r,
                                    Join& join) {
  RowSum row = {to.top[number], to.sum[number], to.unit[number]};
  join.number = number, join.r = r, join.first = row.sum == 0;
  if (join.first) row.top = -INFINITY;
  const float m = set.l ? set.m[r] : set.m[r] * 1.44269504f, l = set.l ? set.l[r] : float(m != -INFINITY);
  join.seen = row.add(m, l, join.keep, join.weight);
  join.sum = row.sum;
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

__device__ inline Join of_lane(const Join& mine, int lane) {
  const int flags = __shfl_sync(0xffffffffu, mine.first + 2 * mine.seen, lane);
  return {__shfl_sync(0xffffffffu, mine.number, lane),
          __shfl_sync(0xffffffffu, mine.r, lane),
          __shfl_sync(0xffffffffu, mine.keep, lane),
          __shfl_sync(0xffffffffu, mine.weight, lane),
          __shfl_sync(0xffffffffu, mine.sum, lane),
          (flags & 1) != 0,
          (flags & 2) != 0};
}
// Calls store(its, d, what becomes of its O from column d on) for the row of each lane; a few rows at once, so that
// many bytes are on their way.
template <int kWidth, class Store>
__device__ __forceinline__ void join_rows(const Join& mine, const float* O, const float* part, int Dv,
                                          const Store& store) {
  constexpr int kRows = 4;
  for (int lane = 0; lane < 32; lane += kRows) {
    Join its[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) its[i] = of_lane(mine, lane + i);
    for (int d = threadIdx.x % 32 * kWidth; d < Dv; d += 32 * kWidth) {
      Several<kWidth> x[kRows], more[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        x[i] = more[i] = {};
        if (!its[i].first) x[i] = *reinterpret_cast<const Several<kWidth>*>(O + its[i].number * Dv + d);
        if (its[i].seen) more[i] = *reinterpret_cast<const Several<kWidth>*>(part + its[i].r * Dv + d);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (its[i].number < 0) continue;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          float& o = nth<kWidth>(x[i], k);
          const float kept = its[i].first ? 0.0f : __fmul_rn(its[i].keep, o);
          o = its[i].seen ? __fadd_rn(kept, __fmul_rn(its[i].weight, nth<kWidth>(more[i], k))) : kept;
        }
        store(its[i], d, x[i]);
      }
    }
  }
}

// A warp merges 32 rows of the set.
template <int kWidth>
__global__ void __launch_bounds__(32 * kMergeWarps) merge_rows(MergedRows to, SetRows set, std::int64_t heads) {
  const std::int64_t r = blockIdx.x * std::int64_t{32 * kMergeWarps} + threadIdx.x;
  Join join;
  if (r < heads * set.rows) {
    const std::int64_t number = r / set.rows * to.S + set.first + r % set.rows;
    const RowSum row = merged_row(to, set, number, r, join);
    to.top[number] = row.top, to.sum[number] = row.sum, to.unit[number] = row.unit;
  }
  join_rows<kWidth>(join, to.O, set.O, to.Dv, [&](const Join& its, int d, Several<kWidth> x) {
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

// A warp's 32 rows: with the last set, if there is one, divided, rounded and written.
template <class T, int kWidth>
__global__ void __launch_bounds__(32 * kMergeWarps)
    finish_rows(MergedRows from, SetRows set, RowResults<T> to, std::int64_t heads, int H) {
  const std::int64_t number = blockIdx.x * std::int64_t{32 * kMergeWarps} + threadIdx.x;
  Join join;
  if (number < heads * from.S) {
    const std::int64_t in_set = number % from.S - set.first;
    RowSum row = {from.top[number], from.sum[number], from.unit[number]};
    if (set.O && in_set >= 0 && in_set < set.rows)
      row = merged_row(from, set, number, number / from.S * set.rows + in_set, join);
    else
      join.number = number, join.first = row.sum == 0, join.sum = row.sum;
    const float l = row.sum * row.unit;
    if (to.LSE) to.LSE[number] = l == 0 ? -INFINITY : __fadd_rn(__fmul_rn(row.top, 0.693147181f), logf(l));
    if (to.m) to.m[number] = l == 0 ? -INFINITY : row.top, to.l[number] = l;
  }
  join_rows<kWidth>(join, from.O, set.O, from.Dv, [&](const Join& its, int d, Several<kWidth> x) {
    const int head = static_cast<int>(its.number / from.S), s = static_cast<int>(its.number % from.S);
    alignas(16) T rounded[kWidth];
    alignas(8) std::int16_t low[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float divided = its.sum == 0 ? 0 : nth<kWidth>(x, i) / its.sum;
      rounded[i] = round_to<T>(divided);
      low[i] = phase09::low_bits(divided, widen(rounded[i]));
    }
    store<kWidth>(to.O.head(head / H, head % H).data + s * to.O.stride + d, rounded);
    if (to.O_lo.data) store<kWidth>(to.O_lo.head(head / H, head % H).data + s * to.O_lo.stride + d, low);
  });
}
// #endregion

}  // namespace flash::phase30::inline FLASH_MACHINE
