// pieces.cuh: words of phase 23: the numbers of rows in pieces, P from a piece; rings that warps fill, not TMA;
// and sections of heads for causal masks.
// Use: row_pieces<T, D><<<…>>>(a, pieces);  probabilities(s, rows, extreme, a);  publish(ring, at);
#pragma once
#include "phases/14-tma-wgmma/softmax.cuh"  // is_extreme
#include "phases/15-warp-specialised/ring.cuh"
#include "phases/21-backward-wgmma/tiles.cuh"
#include "phases/23-backward-turns/phase.hpp"

namespace flash::phase23::inline FLASH_MACHINE {

// #region row-pieces: m + log2 l in one number
// 8 neighbours of a row, which TMA's demands let be read at once; zeros where there are none.
template <class U>
__device__ __forceinline__ uint4 load_eight(const Head<U>& from, std::int64_t row, int column) {
  if (row >= from.rows || column >= from.cols) return make_uint4(0, 0, 0, 0);
  return load8(reinterpret_cast<const std::uint16_t*>(from.data) + row * from.stride + column);
}
// Of two neighbours of O, dO and O's low bits: Σ dO O, with what rounding took from O.
template <class T>
__device__ __forceinline__ float products(unsigned o, unsigned dout, unsigned low) {
  const float2 x = unpack<T>(o), y = unpack<T>(dout);
  return fmaf(y.x, phase09::restore(x.x, static_cast<std::int16_t>(low & 0xffff)),
              y.y * phase09::restore(x.y, static_cast<std::int16_t>(low >> 16)));
}

// A block makes a piece: m, l and δ = Σ_d dO_d O_d - dLSE of 64 rows, as row_terms of phase 20 does; D / 8 lanes share
// a row. It clears 64 rows of dQ_sum, too. m and l are two numbers since their sum in base 2 rounds: by 2^-16 at most
// up to 512, which P in 16 bits does not show, but by any factor where logits are huge (docs/backward.md, "P must be
// the forward's"). A piece with such an extreme row has log2 l alone, and m is subtracted by itself. A row that does
// not exist or sees no finite logit has +inf, and so P = exp2(-inf) = 0; it is not extreme.
template <int D>
struct PieceSums {
  float delta[64];
  phase20::CentreSums<D, 256> centre;
};
template <class T, int D>
__global__ void __launch_bounds__(256) row_pieces(Backward<T> a, RowPiece* pieces) {
  constexpr int kLanes = D / 8, kRowsAtOnce = 256 / kLanes, kRounds = 64 / kRowsAtOnce;
  PieceSums<D>& sums = shared<PieceSums<D>>();
  const int pieces_of_head = static_cast<int>(a.rows / 64), head = blockIdx.x / pieces_of_head;
  const std::int64_t first = std::int64_t{blockIdx.x % pieces_of_head} * 64, padded = std::int64_t{blockIdx.x} * 64;
  const int lane = threadIdx.x % kLanes, b = head / a.H, h = head % a.H;

  if (blockIdx.x < static_cast<unsigned>(a.B * a.H)) {  // the first blocks, one for each head
    const int off = phase20::find_centre<T, D>(a, a.band, blockIdx.x, sums.centre,
                                                  a.centre + std::int64_t{blockIdx.x} * D);
    if (threadIdx.x == 0) a.off_centre[blockIdx.x] = off;
  }
  // All loads at once; zeros meanwhile.
  uint4 o[kRounds], dout[kRounds], low[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const std::int64_t row = first + i * kRowsAtOnce + threadIdx.x / kLanes;
    o[i] = load_eight(a.O.head(b, h), row, lane * 8), dout[i] = load_eight(a.dO.head(b, h), row, lane * 8);
    low[i] = a.O_lo.data ? load_eight(a.O_lo.head(b, h), row, lane * 8) : make_uint4(0, 0, 0, 0);
  }
  if (a.dQ_sum)
#pragma unroll
    for (int i = 0; i < 64 * D; i += 256 * 4)
      *reinterpret_cast<float4*>(a.dQ_sum + padded * D + i + threadIdx.x * 4) = make_float4(0, 0, 0, 0);
  // 64 threads have a row each for m, l and dLSE.
  const std::int64_t my_row = first + threadIdx.x, n = head * a.Q.rows + my_row;  // of the head; of all heads
  const bool exists = threadIdx.x < 64 && my_row < a.Q.rows;
  const float l = exists && a.l ? a.l[n] : 1.0f, dlse = exists && a.dLSE ? a.dLSE[n] : 0.0f;
  float m = !exists ? -INFINITY : a.m ? a.m[n] : a.LSE[n] * 1.4426950408889634f;
  if (m == -INFINITY) m = INFINITY;

#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    float sum = products<T>(o[i].x, dout[i].x, low[i].x) + products<T>(o[i].y, dout[i].y, low[i].y) +
                products<T>(o[i].z, dout[i].z, low[i].z) + products<T>(o[i].w, dout[i].w, low[i].w);
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane == 0) sums.delta[i * kRowsAtOnce + threadIdx.x / kLanes] = sum;
  }
  const bool extreme = __syncthreads_or(is_extreme(m));  // and the sums are there
  if (threadIdx.x >= 64) return;
  RowPiece& piece = pieces[blockIdx.x];
  const float delta = sums.delta[threadIdx.x] - dlse;
  piece.base[threadIdx.x] = m == INFINITY ? m : (extreme ? 0.0f : m) + log2f(l);
  piece.delta[threadIdx.x] = delta;
  if (threadIdx.x == 0) piece.extreme = extreme, piece.number = static_cast<int>(blockIdx.x);
  a.row_m[padded + threadIdx.x] = m, a.row_inverse_l[padded + threadIdx.x] = m == INFINITY ? 0.0f : 1 / l;
  a.row_delta[padded + threadIdx.x] = delta;
  a.row_excess[padded + threadIdx.x] = m == INFINITY ? 0.0f : -dlse;
}
// #endregion

// #region elements: P and dS from pieces, in place
template <int kPieces>
__device__ __forceinline__ bool any_extreme(const RowPiece (&rows)[kPieces]) {
  return rows[0].extreme || rows[kPieces - 1].extreme;
}
// Sᵀ becomes Pᵀ = exp2(c · Sᵀ - base).
template <int kPieces, int N>
__device__ __forceinline__ void exponentials(float (&s)[N], const RowPiece (&rows)[kPieces], float c) {
#pragma unroll
  for (int n = 0; n < N / 4; ++n) {
    const float2 base = load_two(&rows[n / 8].base[n % 8 * 8 + lane_column()]);
    float(&x)[4] = c_fragment(s, n);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = ex2_approx_ftz(fmaf(x[i], c, i % 2 ? -base.y : -base.x));
  }
}
// The same; where a piece is extreme exp2((c · Sᵀ - m) - log2 l), rounded as the forward pass does, with m from HBM.
template <int kPieces, int N, class T>
__device__ __forceinline__ void probabilities(float (&s)[N], const RowPiece (&rows)[kPieces], bool extreme,
                                              const Backward<T>& a) {
  if (!extreme) return exponentials(s, rows, a.scale_log2);
#pragma unroll
  for (int n = 0; n < N / 4; ++n) {
    const RowPiece& piece = rows[n / 8];
    const std::int64_t row = std::int64_t{piece.number} * 64 + n % 8 * 8 + lane_column();
    const float2 m = piece.extreme ? load_two(a.row_m + row) : make_float2(0, 0);
    float(&x)[4] = c_fragment(s, n);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = x[i] * a.scale_log2 - (i % 2 ? m.y : m.x);
  }
  exponentials(s, rows, 1.0f);
}
// dPᵀ becomes dSᵀ = Pᵀ ∘ (dPᵀ - δ).
template <int kPieces, int N>
__device__ __forceinline__ void gradients(float (&dp)[N], const float (&p)[N], const RowPiece (&rows)[kPieces]) {
#pragma unroll
  for (int n = 0; n < N / 4; ++n) {
    const float2 delta = load_two(&rows[n / 8].delta[n % 8 * 8 + lane_column()]);
    float(&x)[4] = c_fragment(dp, n);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = p[4 * n + i] * (x[i] - (i % 2 ? delta.y : delta.x));
  }
}
// #endregion

// #region handover: a ring that warps fill
// `writers` warps fill a place rather than TMA, `readers` leave it.
template <int kStages>
__device__ void init_handover(Ring<kStages>& ring, int writers, int readers) {
  for (auto& barrier : ring.full) mbarrier_init(&barrier, writers);
  for (auto& barrier : ring.empty) mbarrier_init(&barrier, readers);
}
// The warp has written its part: for wgmma and TMA to see, and all lanes have.
template <int kStages>
__device__ __forceinline__ void publish(Ring<kStages>& ring, const Cursor<kStages>& at) {
  fence_proxy_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&ring.full[at.stage]);
}
// #endregion

// #region sections: causal masks
// Heads in sections, of each the first K/V tile in all of its heads, then the second one.
__device__ inline KeyWork keys_in_sections(unsigned number, unsigned kv_tiles, unsigned heads, unsigned section) {
  const unsigned first = number / (section * kv_tiles) * section;
  const unsigned rank = number - first * kv_tiles, width = min(section, heads - first);
  return {static_cast<int>(first + rank % width), static_cast<int>(rank / width)};
}
// Without a mask a head's K/V tiles, then the next one's. With one: sections, whose first K/V tiles most rows see, so
// that short ones fill the gaps in the end. `sharing`: so many blocks, neighbours, have a K/V tile in common.
__device__ inline KeyWork keys_of_section(unsigned heads, unsigned section, unsigned sharing = 1) {
  const unsigned block = blockIdx.x / sharing, kv_tiles = gridDim.x / sharing / heads;
  if (section == 0) return {static_cast<int>(block / kv_tiles), static_cast<int>(block % kv_tiles)};
  return keys_in_sections(block, kv_tiles, heads, section);
}
// Heads whose Q, dO (2 bytes a number) and dQ_sum (4) stay in `cache` bytes of the L2 cache while all their K/V tiles
// are done.
inline unsigned heads_in_cache(std::int64_t heads, std::int64_t Sq, int D, std::int64_t cache) {
  const std::int64_t most = std::max<std::int64_t>(cache / std::max<std::int64_t>(Sq * D * 8, 1), 1);
  const std::int64_t sections = (heads + most - 1) / most;
  return static_cast<unsigned>((heads + sections - 1) / sections);
}
// Of an H200's 50 MB 32; a quarter of that up to 1024 keys.
inline unsigned section_of_keys(std::int64_t heads, std::int64_t Sq, std::int64_t Sk, int D) {
  return heads_in_cache(heads, Sq, D, Sk <= 1024 ? 8 << 20 : 32 << 20);
}
// #endregion

}  // namespace flash::phase23::inline FLASH_MACHINE
