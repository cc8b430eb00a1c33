// pieces.cuh: words of phase 24: the kernel in front, which no longer clears dQ_sum; K/V tiles by drawn numbers; and
// the way of dQ from block to block.
// Use: row_pieces<T, D, Br><<<…>>>(a, pieces, relay);  keys_of_number(number, heads, section);  pass_on(…);
#pragma once
#include "phases/23-backward-turns/pieces.cuh"
#include "phases/24-backward-fused/phase.hpp"

namespace flash::phase24::inline FLASH_MACHINE {

// #region relay: blocks that pass dQ on
using phase23::any_extreme, phase23::gradients, phase23::init_handover, phase23::probabilities, phase23::publish;
// Blocks count: those that have begun, and of each Q tile those whose share of dQ is in dQ_sum.
struct Relay {
  unsigned* begun;
  unsigned* done;  // [B, H, padded rows / 64]: of a Q tile its first number
  bool in_order;   // do the shares of a Q tile come in the order of the keys? Sums then have the same bits in every run
};
// The K/V tile of the block that has drawn `number`. In sections blocks of a head begin one after another, and the
// first share of dQ has long been stored when the last one wants the sum. A block waits only for those with smaller
// numbers, which have begun: they run, or have ended, in whatever order the GPU starts blocks.
__device__ inline KeyWork keys_of_number(unsigned number, unsigned heads, unsigned section) {
  return phase23::keys_in_sections(number, gridDim.x / heads, heads, section);
}
// What a block does. kv_tile: the number of its share of dQ, too, in Q tiles that see it, 0 for the first.
struct Share {
  KeyWork work;
  int h, b, first_piece;    // the head's
  QueryRange tiles;         // that see the keys
  int rounded_end;          // Q tiles before that one see no further K/V tile: its share is the last
  const float* row_excess;  // of the head, in the first share, where rows of dS have other sums than 0
};
template <int Br, int Bc, class T>
__device__ Share share_of(unsigned number, const Backward<T>& a, unsigned section, const Band<int>& band) {
  const KeyWork work = keys_of_number(number, a.B * a.H, section);
  const int next_key = (work.kv_tile + 1) * Bc;
  return {work,
          work.head % a.H,
          work.head / a.H,
          work.head * static_cast<int>(a.rows / 64),
          query_range<Br, Bc>(next_key - Bc, band),
          next_key < band.Sk ? query_range<Br, Bc>(next_key, band).first : 0x7fffffff,
          work.kv_tile == 0 && a.dLSE ? a.row_excess + work.head * a.rows : nullptr};
}
// #endregion

// #region centre: what dQ's keys are counted from
template <int D>
struct PieceSums {
  float delta[64];
  float keys[8][D], squares[8];  // of each warp
  float lengths[8];
};
// By a head's first block: of the first keys, at most 64, the mean; a row of zeros where no row sees a key. Behind it,
// 1 where it matters: a row of dS, rounded, misses its sum by e, and dQ errs by e · mean beside what rounding does
// anyway, which goes by how the keys differ. Where the mean is short beside that, |mean|² < 1/8 of their variance, the
// rows need not be summed.
template <class T, int D>
__device__ void find_centre(const Backward<T>& a, PieceSums<D>& sums, int head) {
  constexpr int kLanes = D / 8, kRowsAtOnce = 256 / kLanes;
  const int keys = static_cast<int>(min(a.band.end(a.Q.rows - 1), std::int64_t{64}));
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / 32;
  const Head<const T> K = a.K.head(head / a.H, head % a.H);
  float sum[8] = {}, square = 0;
#pragma unroll
  for (int i = 0; i < 64 / kRowsAtOnce; ++i) {
    const int key = i * kRowsAtOnce + threadIdx.x / kLanes;
    const uint4 eight = key < keys ? phase23::load_eight(K, key, lane * 8) : make_uint4(0, 0, 0, 0);
    const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float2 x = unpack<T>(pairs[c]);
      sum[2 * c] += x.x, sum[2 * c + 1] += x.y;
      square = fmaf(x.x, x.x, fmaf(x.y, x.y, square));
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    square += __shfl_xor_sync(0xffffffffu, square, distance);
    if (distance >= kLanes)
#pragma unroll
      for (float& x : sum) x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  if (threadIdx.x % 32 < kLanes)
#pragma unroll
    for (int c = 0; c < 8; ++c) sums.keys[warp][lane * 8 + c] = sum[c];
  if (threadIdx.x % 32 == 0) sums.squares[warp] = square;
  __syncthreads();  // all warps' sums are there
  float mean = 0;
  if (threadIdx.x < D && keys > 0) {
    for (const auto& of_warp : sums.keys) mean += of_warp[threadIdx.x];
    mean /= static_cast<float>(keys);
  }
  float length = mean * mean;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) length += __shfl_xor_sync(0xffffffffu, length, distance);
  if (threadIdx.x % 32 == 0) sums.lengths[warp] = length;
  float* const centre = a.centre + head * std::int64_t{D + 4};
  if (threadIdx.x < D) centre[threadIdx.x] = mean;
  __syncthreads();  // all warps' lengths are there
  if (threadIdx.x >= 4) return;
  float all = 0, squares = 0;
  for (int i = 0; i < 8; ++i) all += sums.lengths[i], squares += sums.squares[i];
  const float variance = squares / static_cast<float>(max(keys, 1)) - all;
  centre[D + threadIdx.x] = all == 0 || 8 * all < variance ? 0.0f : 1.0f;  // NaN: 1
}
// #endregion

// #region row-pieces: as in phase 23, without what clears dQ_sum
// It sets the counts to 0, and dQ of Q tiles that see no key: no block comes to them.
template <class T, int D, int Br>
__global__ void __launch_bounds__(256) row_pieces(Backward<T> a, RowPiece* pieces, Relay relay) {
  constexpr int kLanes = D / 8, kRowsAtOnce = 256 / kLanes, kRounds = 64 / kRowsAtOnce;
  PieceSums<D>& sums = shared<PieceSums<D>>();
  const int pieces_of_head = static_cast<int>(a.rows / 64), head = blockIdx.x / pieces_of_head;
  const std::int64_t first = std::int64_t{blockIdx.x % pieces_of_head} * 64, padded = std::int64_t{blockIdx.x} * 64;
  const int lane = threadIdx.x % kLanes, b = head / a.H, h = head % a.H;

  // All loads at once; zeros meanwhile.
  uint4 o[kRounds], dout[kRounds], low[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const std::int64_t row = first + i * kRowsAtOnce + threadIdx.x / kLanes;
    o[i] = phase23::load_eight(a.O.head(b, h), row, lane * 8);
    dout[i] = phase23::load_eight(a.dO.head(b, h), row, lane * 8);
    low[i] = a.O_lo.data ? phase23::load_eight(a.O_lo.head(b, h), row, lane * 8) : make_uint4(0, 0, 0, 0);
  }
  if (threadIdx.x == 0) relay.done[blockIdx.x] = 0;
  if (threadIdx.x == 0 && blockIdx.x == 0) *relay.begun = 0;
  const std::int64_t last_row = min((first / Br + 1) * Br, a.Q.rows) - 1;  // of the Q tile
  if (a.band.end(last_row) == 0) {
    const Head<T> dQ = a.dQ.head(b, h);
    for (int i = 0; i < kRounds; ++i) {
      const std::int64_t row = first + i * kRowsAtOnce + threadIdx.x / kLanes;
      auto* const to = reinterpret_cast<std::uint16_t*>(dQ.data) + row * dQ.stride + lane * 8;
      if (row < dQ.rows && lane * 8 < dQ.cols) store8(to, make_uint4(0, 0, 0, 0));
    }
  }
  if (first == 0) find_centre<T, D>(a, sums, head);
  // 64 threads have a row each for m, l and dLSE.
  const std::int64_t my_row = first + threadIdx.x, n = head * a.Q.rows + my_row;  // of the head; of all heads
  const bool exists = threadIdx.x < 64 && my_row < a.Q.rows;
  const float l = exists && a.l ? a.l[n] : 1.0f, dlse = exists && a.dLSE ? a.dLSE[n] : 0.0f;
  float m = !exists ? -INFINITY : a.m ? a.m[n] : a.LSE[n] * 1.4426950408889634f;
  if (m == -INFINITY) m = INFINITY;

#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    float sum = phase23::products<T>(o[i].x, dout[i].x, low[i].x) + phase23::products<T>(o[i].y, dout[i].y, low[i].y) +
                phase23::products<T>(o[i].z, dout[i].z, low[i].z) + phase23::products<T>(o[i].w, dout[i].w, low[i].w);
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane == 0) sums.delta[i * kRowsAtOnce + threadIdx.x / kLanes] = sum;
  }
  const bool extreme = __syncthreads_or(is_extreme(m));  // and the sums are there
  if (threadIdx.x >= 64) return;
  RowPiece& piece = pieces[blockIdx.x];
  piece.base[threadIdx.x] = m == INFINITY ? m : (extreme ? 0.0f : m) + log2f(l);
  piece.delta[threadIdx.x] = sums.delta[threadIdx.x] - dlse;
  if (threadIdx.x == 0) piece.extreme = extreme, piece.number = static_cast<int>(blockIdx.x);
  a.row_m[padded + threadIdx.x] = m;
  a.row_excess[padded + threadIdx.x] = m == INFINITY ? 0.0f : -dlse;
}
// #endregion

// #region pass-on: one thread for each of the two places that dQ leaves through
// What the thread does about every other one of the block's Q tiles, from `tile` down: gives the
// place to the consumers when it is free, with the sum of the others' shares in it where theirs is the last share; and
// when their numbers are there, sends them on.
template <int Br, class Place, class T>
__device__ __forceinline__ void pass_on(Place& place, std::uint64_t* full, std::uint64_t* empty, const Backward<T>& a,
                                        const Relay& relay, const TensorMap* dQ_map, int tile, const Share& share) {
  constexpr int kColumns = sizeof place / sizeof(float) / Br;
  const int kv_tile = share.work.kv_tile;
  const int first = share.tiles.first;
  const auto takes_sum = [&](int tile) { return kv_tile > 0 && tile < share.rounded_end; };
  if (tile >= first && !takes_sum(tile)) mbarrier_arrive(empty);
#pragma unroll 1
  for (unsigned parity = 0; tile >= first; tile -= 2, parity ^= 1) {
    const int piece = share.first_piece + tile * (Br / 64);
    float* const sum = a.dQ_sum + std::int64_t{piece} * 64 * kColumns;
    const bool rounded = tile < share.rounded_end;
    // The first share has been stored; in order: those before this one are there; to be rounded: all others.
    if (kv_tile > 0) {
      wait_at_least(relay.done + piece, rounded || relay.in_order ? kv_tile : 1);
      fence_proxy_async_global();  // TMA is to see what TMA has written for other blocks
    }
    if (takes_sum(tile)) {
      mbarrier_arrive_expect_tx(empty, sizeof place);
      cp_async_bulk(&place, sum, sizeof place, empty);
    }
    mbarrier_wait(full, parity);
    if (rounded) {
#pragma unroll 1
      for (int i = 0; i < Br; i += 16)
#pragma unroll 1
        for (int panel = 0; panel < kColumns / 64; ++panel)
          cp_async_bulk_tensor_store(dQ_map, &place[i / 16][panel * 4][0], 64 * panel, tile * Br + i, share.h, share.b);
    } else if (kv_tile > 0) {
      cp_reduce_async_bulk_add(sum, &place[0][0][0].x, sizeof place);
    } else {
      cp_async_bulk_store(sum, &place[0][0][0].x, sizeof place);
    }
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
    if (tile - 2 >= first && !takes_sum(tile - 2)) mbarrier_arrive(empty);  // the place has been read
    if (!rounded) {
      cp_async_bulk_wait<0>();  // not only read: the share is in dQ_sum
      red_release_add(relay.done + piece, 1);
    }
  }
  cp_async_bulk_wait<0>();  // shared memory must live until then
}
// #endregion

}  // namespace flash::phase24::inline FLASH_MACHINE
