// tiles.cuh: words of phases 21 to 23: which Q tiles see a K/V tile, numbers of rows, P and dS, and dQ = dS K. As in
// phase 20 a product's rows are keys and its columns queries. The others: phase 14's begin_scores and begin_output.
// Use: begin_scores<T>(s, tiles.K[warpgroup], tiles.Q[stage]); wgmma_wait<0>(s); probabilities(s, rows, scale_log2); …
#pragma once
#include "phases/14-tma-wgmma/tiles.cuh"
#include "phases/20-backward-tensor-cores/rows_backward.cuh"

namespace flash::inline FLASH_MACHINE {

// #region words: of phase 20 that are used as they are
using phase20::Backward, phase20::dq_fragment, phase20::p_again;
// #endregion

// #region queries: a block's K/V tile, and which Q tiles see it
struct KeyWork {
  int head, kv_tile;
};
// Without a mask blocks go through a head's K/V tiles, then through the next one's; with one the K/V tiles that most
// rows see, the first ones, come first in all heads.
__device__ inline KeyWork keys_of_block(unsigned heads, bool most_seen_first) {
  const unsigned block = blockIdx.x, kv_tiles = gridDim.x / heads;
  const unsigned head = most_seen_first ? block % heads : block / kv_tiles;
  const unsigned kv_tile = most_seen_first ? block / heads : block % kv_tiles;
  return {static_cast<int>(head), static_cast<int>(kv_tile)};
}

// Q tiles first … end - 1 have rows that see some of the keys; from `full` on each row sees them all.
struct QueryRange {
  int first, full, end;
};
template <int Br, int Bc>
__device__ QueryRange query_range(int first_key, const Band<int>& band) {
  const int last_key = first_key + Bc - 1, end = (band.Sq + Br - 1) / Br;
  const auto tile_of = [](int row) { return max(row, 0) / Br; };
  const int full = last_key >= band.Sk ? end : tile_of(last_key - band.right + Br - 1);
  return {tile_of(first_key - band.right), full, end};
}
// #endregion

// #region row-terms: m, 1 / l and δ of a Q tile's rows
template <int Br>
struct RowTerms {
  alignas(16) float m[Br];
  alignas(16) float inverse_l[Br];
  alignas(16) float delta[Br];
};
// One thread begins to copy them, from row `row` of all heads' padded ones; `full` counts their bytes.
template <int Br, class T>
__device__ void load_row_terms(RowTerms<Br>& rows, const Backward<T>& a, std::int64_t row, std::uint64_t* full) {
  cp_async_bulk(rows.m, a.row_m + row, sizeof rows.m, full);
  cp_async_bulk(rows.inverse_l, a.row_inverse_l + row, sizeof rows.inverse_l, full);
  cp_async_bulk(rows.delta, a.row_delta + row, sizeof rows.delta, full);
}
__device__ inline float2 load_two(const float* p) {
  return *reinterpret_cast<const float2*>(p);
}
// #endregion

// #region elements: P and dS, in place
// Sᵀ becomes Pᵀ. P of a row that does not exist is 0: its m is +inf.
template <int Br, int N>
__device__ __forceinline__ void probabilities(float (&s)[N], const RowTerms<Br>& rows, float scale_log2) {
#pragma unroll
  for (int n = 0; n < N / 4; ++n) {
    const int query = n * 8 + lane_column();
    const float2 m = load_two(&rows.m[query]), inverse_l = load_two(&rows.inverse_l[query]);
    float(&x)[4] = c_fragment(s, n);
    x[0] = p_again(x[0], scale_log2, m.x, inverse_l.x), x[1] = p_again(x[1], scale_log2, m.y, inverse_l.y);
    x[2] = p_again(x[2], scale_log2, m.x, inverse_l.x), x[3] = p_again(x[3], scale_log2, m.y, inverse_l.y);
  }
}
// dPᵀ becomes dSᵀ = Pᵀ ∘ (dPᵀ - δ).
template <int Br, int N>
__device__ __forceinline__ void gradients(float (&dp)[N], const float (&p)[N], const RowTerms<Br>& rows) {
#pragma unroll
  for (int n = 0; n < N / 4; ++n) {
    const float2 delta = load_two(&rows.delta[n * 8 + lane_column()]);
    float(&x)[4] = c_fragment(dp, n);
    x[0] = p[4 * n] * (x[0] - delta.x), x[1] = p[4 * n + 1] * (x[1] - delta.y);
    x[2] = p[4 * n + 2] * (x[2] - delta.x), x[3] = p[4 * n + 3] * (x[3] - delta.y);
  }
}

// Which of all queries is the first that sees a key: more than there are, where there is no such key.
__device__ inline int first_query(int key, const Band<int>& band) {
  return key < band.Sk ? key - band.right : 0x7fffffff;
}
// P = 0 where the query does not see the key, by selection; `from`: of the lane's two keys the first column, counted
// from the lane's first one, of a query that does.
template <int N>
__device__ __forceinline__ void hide_queries(float (&p)[N], const int (&from)[2]) {
#pragma unroll
  for (int i = 0; i < N; ++i) p[i] = column_of(i) < from[row_of(i)] ? 0.0f : p[i];
}
// #endregion

// #region dq: dS goes to shared memory, for the keys of all warps; dQ = dS K
// A warp's 16 keys of dSᵀ, rounded: four 8 x 8 matrices at a time. Panels of 64 queries: [panel][key][query].
template <int kPanels, int Bc>
__device__ __forceinline__ void store_ds(std::uint16_t (&dS)[kPanels][Bc][64], const unsigned (&ds)[kPanels * 4][4],
                                         int first_key) {
  const int lane = threadIdx.x % 32, row = first_key + threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int i = 0; i < kPanels * 4; ++i) stmatrix_x4(&dS[i / 4][row][swizzled(row, i % 4 * 16 + lane / 16 * 8)], ds[i]);
}

// Begins dQ = dS K for a panel of dSᵀ, 64 queries, and N / 32 panels of K from `panel` on, 16 keys at a time. Keys are
// the rows of both, and what is summed over: both operands lie across (MN-major), and 16 keys further on is 16 rows of
// 128 bytes further on. The same copies were left operands of dK and of S as they lie (K-major).
template <class T, int N, int kWarpgroups, int kPanels, int Bc>
__device__ __forceinline__ void begin_dq(float (&dq)[N], const std::uint16_t (&dS)[Bc][64],
                                         const std::uint16_t (&K)[kWarpgroups][kPanels][64][64], int panel) {
  const MatrixDescriptor ds = matrix_descriptor(dS), k = matrix_descriptor(K[0][panel], sizeof K[0][0]);
  wgmma_fence();
#pragma unroll
  for (int key = 0; key < Bc; key += 16)
    wgmma_m64nNk16<T, Major::MN, Major::MN>(dq, ds + key * 128, k + (key / 64 * sizeof K[0] + key % 64 * 128),
                                            key != 0);
  wgmma_commit();
}
// #endregion

// #region excess: what rows of dS, rounded, sum to; finish_dq takes it from dQ, times the centre of K (phase 20)
// A warp sums 16 rows of dS over kKeys keys, from `first_key` on. In shared memory these rows are columns of a panel of
// dSᵀ, from `column` on. Lanes of four have the same sums.
template <class T, int kKeys, int Bc>
__device__ __forceinline__ void add_excess(float* excess /*[16]*/, const std::uint16_t (&dS)[Bc][64], int first_key,
                                           int column) {
  const int row = first_key + phase20::b_row();  // the lane's, of the first 16 keys; the next 16 lie alike
  const std::uint16_t* const from = &dS[row][swizzled(row, column + phase20::b_column())];
  float sums[1][4] = {};
#pragma unroll 2
  for (int key = 0; key < kKeys; key += 16) {
    unsigned x[1][4];
    ldmatrix_x4_trans(x[0], from + key * 64);
    phase20::add_row_sums<T>(sums, x);
  }
  if (threadIdx.x % 4 == 0) {
    atomicAdd(&excess[lane_row()], sums[0][0]);
    atomicAdd(&excess[lane_row() + 8], sums[0][2]);
  }
}
// #endregion

// #region maps: what TMA copies
// Q or dO, in boxes of a Q tile's rows; K instead where they have no rows, and nothing is copied.
template <class T>
TensorMap map_of_queries(const DeviceProblem<T>& p, const Heads<const T>& x, int box_rows) {
  return map_of(p, x.rows > 0 ? x : p.K, p.H, box_rows);
}
// K or V, of which a warpgroup has 64 rows. Rows that no query sees are as if they were not there (seen_keys); where
// that is all of them nothing is copied.
template <class T>
TensorMap map_of_seen_keys(const DeviceProblem<T>& p, const Heads<const T>& x) {
  const Heads<const T> seen = seen_keys(p, x);
  return map_of(p, seen.rows > 0 ? seen : x, p.Hk, 64);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
