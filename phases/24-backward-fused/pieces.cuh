// pieces.cuh: words of phase 24: the kernel in front, which no longer clears dQ_sum; K/V tiles by drawn numbers; and
// the way of dQ from block to block.
// Use: row_pieces<T, D, Br><<<…>>>(a, pieces, relay);  keys_of_number(number, heads, section);  pass_on(…);
#pragma once
#include "phases/23-backward-turns/pieces.cuh"
#include "phases/24-backward-fused/phase.hpp"

namespace flash::phase24::inline FLASH_MACHINE {

using phase23::any_extreme, phase23::gradients, phase23::init_handover, phase23::probabilities, phase23::publish;

// #region relay: blocks that pass dQ on
// Blocks count: those that have begun, and of each Q tile those whose share of dQ is in dQ_sum.
struct Relay {
  unsigned* begun;
  unsigned* done;  // [B, H, padded rows / 64]: of a Q tile its first number
  bool in_order;   // do the shares of a Q tile come in the order of the keys? Sums then have the same bits in every run
};
// The K/V tile of the block that has drawn `number`. A block waits only for those with smaller numbers in its head,
// which have begun: they run, or have ended, in whatever order the GPU starts blocks.
__device__ inline KeyWork keys_of_number(unsigned number, unsigned heads, unsigned section) {
  const unsigned kv_tiles = gridDim.x / heads;
  if (section == 0) return {static_cast<int>(number / kv_tiles), static_cast<int>(number % kv_tiles)};
  const unsigned first = number / (section * kv_tiles) * section, rank = number - first * kv_tiles;
  const unsigned width = min(section, heads - first);
  return {static_cast<int>(first + rank % width), static_cast<int>(rank / width)};
}
// What a block does. kv_tile: the number of its share of dQ, too, in Q tiles that see it, 0 for the first.
struct Share {
  KeyWork work;
  int rounded_end;          // Q tiles before that one see no further K/V tile: its share is the last
  const float* row_excess;  // of the head, in the first share, where rows of dS have other sums than 0
};
template <int Br, int Bc, class T>
__device__ Share share_of(unsigned number, const Backward<T>& a, unsigned section, const Band<int>& band) {
  const KeyWork work = keys_of_number(number, a.B * a.H, section);
  const int next_key = (work.kv_tile + 1) * Bc;
  return {work, next_key < band.Sk ? query_range<Br, Bc>(next_key, band).first : 0x7fffffff,
          work.kv_tile == 0 && a.dLSE ? a.row_excess + work.head * a.rows : nullptr};
}
// #endregion

// #region row-pieces: as in phase 23, without what clears dQ_sum
// It sets the counts to 0, and dQ of Q tiles that see no key: no block comes to them.
template <class T, int D, int Br>
__global__ void __launch_bounds__(256) row_pieces(Backward<T> a, RowPiece* pieces, Relay relay) {
  constexpr int kLanes = D / 8, kRowsAtOnce = 256 / kLanes, kRounds = 64 / kRowsAtOnce;
  phase23::PieceSums& sums = shared<phase23::PieceSums>();
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
  if (first == 0 && threadIdx.x < 128) phase20::find_centre<T, D>(a, head);
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
// What the thread does about all of the block's Q tiles, or every other one, from `tile` down to `first`: gives the
// place to the consumers when it is free, with the sum of the others' shares in it where theirs is the last share; and
// when their numbers are there, sends them on.
template <int Br, class Place, class T>
__device__ __forceinline__ void pass_on(Place& place, std::uint64_t* full, std::uint64_t* empty, const Backward<T>& a,
                                        const Relay& relay, const TensorMap* dQ_map, int h, int b, int tile,
                                        int first, const Share& share) {
  constexpr int kColumns = sizeof place / sizeof(float) / Br;
  const int kv_tile = share.work.kv_tile, first_piece = share.work.head * static_cast<int>(a.rows / 64);
#pragma unroll 1
  for (unsigned parity = 0; tile >= first; tile -= 2, parity ^= 1) {
    const int piece = first_piece + tile * (Br / 64);
    float* const sum = a.dQ_sum + std::int64_t{piece} * 64 * kColumns;
    unsigned* const done = relay.done + piece;
    const bool rounded = tile < share.rounded_end;
    if (rounded && kv_tile > 0) {
      wait_at_least(done, kv_tile);  // all others' shares are there
      mbarrier_arrive_expect_tx(empty, sizeof place);
      cp_async_bulk(&place, sum, sizeof place, empty);
    } else {
      mbarrier_arrive(empty);
      if (kv_tile > 0) wait_at_least(done, relay.in_order ? kv_tile : 1);  // the first share is there; all before
    }
    mbarrier_wait(full, parity);
    if (rounded) {
#pragma unroll 1
      for (int i = 0; i < Br; i += 16)
#pragma unroll
        for (int panel = 0; panel < kColumns / 64; ++panel)
          cp_async_bulk_tensor_store(dQ_map, &place[i / 16][panel * 4][0], 64 * panel, tile * Br + i, h, b);
    } else if (kv_tile > 0) {
      cp_reduce_async_bulk_add(sum, &place[0][0][0].x, sizeof place);
    } else {
      cp_async_bulk_store(sum, &place[0][0][0].x, sizeof place);
    }
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();  // not only read: the share is in dQ_sum
    if (!rounded) red_release_add(done, 1);
  }
}
// #endregion

}  // namespace flash::phase24::inline FLASH_MACHINE
