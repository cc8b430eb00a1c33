// pieces.cuh: words of phase 23: the numbers of rows in pieces, P from a piece; rings that warps fill, not TMA;
// and sections of heads for causal masks.
// Use: row_pieces<T, D><<<…>>>(a, pieces);  probabilities(s, rows, a);  publish(ring, at);
#pragma once
#include "phases/15-warp-specialised/ring.cuh"
#include "phases/21-backward-wgmma/tiles.cuh"
#include "phases/23-backward-turns/phase.hpp"

namespace flash::phase23::inline FLASH_MACHINE {

// #region row-pieces: m + log2 l in one number
// m and l are two numbers since their sum in base 2 rounds: by 2^-16 at most up to 512, which P in 16 bits does not
// show, but by any factor where logits are huge (docs/backward.md, "P must be the forward's"). A piece with such an
// extreme row has log2 l alone, and m is subtracted by itself. A row that does not exist or sees no finite logit has
// +inf, and so P = exp2(-inf) = 0; it is not extreme.
template <class T, int D>
__global__ void __launch_bounds__(256) row_pieces(Backward<T> a, RowPiece* pieces) {
  constexpr int kLanes = D / 8, kRowsAtOnce = 256 / kLanes, kRounds = 64 / kRowsAtOnce;
  const int lane = threadIdx.x % kLanes;
  RowPiece& piece = pieces[blockIdx.x];
  phase20::RowNumbers numbers[kRounds];
  bool extreme = false;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t row = std::int64_t{blockIdx.x} * 64 + round * kRowsAtOnce + threadIdx.x / kLanes;
    numbers[round] = phase20::row_numbers<D>(a, row, lane);
    extreme = extreme || is_extreme(numbers[round].m);
    if (lane > 0) continue;
    a.row_m[row] = numbers[round].m, a.row_inverse_l[row] = numbers[round].inverse_l();
    a.row_delta[row] = numbers[round].delta;
  }
  extreme = __syncthreads_or(extreme);
  if (threadIdx.x == 0) piece.extreme = extreme, piece.number = static_cast<int>(blockIdx.x);
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int i = round * kRowsAtOnce + threadIdx.x / kLanes;
    const float m = numbers[round].m;
    if (lane > 0) continue;
    piece.base[i] = m == INFINITY ? m : (extreme ? 0.0f : m) + log2f(numbers[round].l);
    piece.delta[i] = numbers[round].delta;
  }
}
// #endregion

// #region elements: P and dS from pieces, in place
// Sᵀ becomes Pᵀ = exp2(c · Sᵀ - base); of an extreme piece exp2((c · Sᵀ - m) - log2 l), rounded as the forward pass
// does, with m from HBM.
template <int kPieces, int N, class T>
__device__ __forceinline__ void probabilities(float (&s)[N], const RowPiece (&rows)[kPieces], const Backward<T>& a) {
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const float* base = rows[piece].base + lane_column();
    float factor = a.scale_log2;
    if (rows[piece].extreme) {
      const float* row_m = a.row_m + std::int64_t{rows[piece].number} * 64 + lane_column();
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 m = load_two(row_m + n * 8);
        float(&x)[4] = c_fragment(s, piece * 8 + n);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = x[i] * factor - (i % 2 ? m.y : m.x);
      }
      factor = 1;
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 of = load_two(base + n * 8);
      float(&x)[4] = c_fragment(s, piece * 8 + n);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = ex2_approx_ftz(fmaf(x[i], factor, i % 2 ? -of.y : -of.x));
    }
  }
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
// Without a mask a head's K/V tiles, then the next one's. With one: heads in sections, of each the K/V tiles that most
// rows see first, in all of its heads, so that short ones fill the gaps in the end.
__device__ inline KeyWork keys_of_section(unsigned heads, unsigned section) {
  if (section == 0) return keys_of_block(heads, false);
  const unsigned kv_tiles = gridDim.x / heads, first = blockIdx.x / (section * kv_tiles) * section;
  const unsigned rank = blockIdx.x - first * kv_tiles, width = min(section, heads - first);
  return {static_cast<int>(first + rank % width), static_cast<int>(rank / width)};
}
// Heads whose Q, dO (2 bytes a number) and dQ_sum (4) stay in the L2 cache while all their K/V tiles are done: 32 MB of
// an H200's 50; a quarter of that up to 1024 keys.
inline unsigned section_of_keys(std::int64_t heads, std::int64_t Sq, std::int64_t Sk, int D) {
  const std::int64_t bytes = std::max<std::int64_t>(Sq * D * 8, 1), cache = Sk <= 1024 ? 8 << 20 : 32 << 20;
  const std::int64_t most = std::max<std::int64_t>(cache / bytes, 1), sections = (heads + most - 1) / most;
  return static_cast<unsigned>((heads + sections - 1) / sections);
}
// #endregion

}  // namespace flash::phase23::inline FLASH_MACHINE
