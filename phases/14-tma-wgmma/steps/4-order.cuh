// 4-order.cuh: tiles from the last to the first; and the longest Q tiles first where a mask hides keys.
// New since 3-finish.cuh: a grid of one dimension, and one function for what a block does.
// Run it: build/default/bin/phase14_steps; the next step: 5-ahead.cuh
#pragma once
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/11-swizzle/fragments.cuh"
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/14-tma-wgmma/softmax.cuh"  // Rows, softmax, finish_rows
#include "phases/14-tma-wgmma/tiles.cuh"    // work_of_block, tile_range, store_output
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase14::inline FLASH_MACHINE::order {

// #region tiles: shared memory
// Shared memory of a block: elements of 16 bits, as bits. Element (row, column) of a tile is at [row][swizzled(…)].
template <int D, int Br, int Bc>
struct Tiles {
  alignas(16) std::uint16_t Q[Br][D];
  alignas(16) std::uint16_t K[2][Bc][D];  // tile j is in stage j % 2
  alignas(16) std::uint16_t V[2][Bc][D];
};
// #endregion

// #region load-tile: HBM to shared memory
// Begins to copy HBM -> shared memory, to be waited for: rows first … first + Rows - 1, zeros from row `end` and column
// from.cols on (0 · NaN is NaN). 16 bytes at a time where base, stride and D are multiples of that, else element by
// element, at once.
template <int kThreads, int D, int Rows, class T>
__device__ void load_tile(std::uint16_t (&tile)[Rows][D], Head<const T> from, std::int64_t first, std::int64_t end) {
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from.data);
  if (in_pieces_of_8(from)) {
#pragma unroll
    for (int i = 0; i < Rows * D / 8; i += kThreads) {
      const int r = (i + threadIdx.x) / (D / 8), c = (i + threadIdx.x) % (D / 8) * 8;
      const bool inside = first + r < end && c < from.cols;
      cp_async_16(&tile[r][swizzled(r, c)], inside ? &bits[(first + r) * from.stride + c] : bits, inside ? 16 : 0);
    }
    return;
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < Rows * D; i += kThreads) {
    const int r = i / D, c = i % D;
    const bool inside = first + r < end && c < from.cols;
    tile[r][swizzled(r, c)] = inside ? bits[(first + r) * from.stride + c] : std::uint16_t{0};
  }
}
// #endregion

// What a lane holds of its warp's 16 rows of a Q tile, and what the warp does with a K/V tile. Two of the rows are the
// lane's, 8 apart. S and O are products, in registers as rows.cuh says.
template <class T, int D, int Br, int Bc>
struct Warp {
  Tiles<D, Br, Bc>& tiles;
  const Band<int> band;
  const float scale_log2;
  const int lane = threadIdx.x % 32, my_row = threadIdx.x / 32 * 16 + lane / 4;  // of the Q tile; and the one 8 below
  const float c = factor_of(scale_log2), sign = sign_of(scale_log2);
  // #region keep-q: Q's fragments stay
  static constexpr bool kKeepQ = D <= 128;  // else there are too few registers
  unsigned q[kKeepQ ? D / 16 : 1][4] = {};
  // #endregion

  // row: my_row, of all. From tile `masked` on: seen[2] keys
  int row = 0, masked = 0, seen[2] = {};
  Rows rows = {};                                      // m and l
  float s[Bc / 2] = {}, o[D / 2] = {}, alpha[2] = {};  // S, then P; O; by what O must be multiplied
  unsigned p[Bc / 16][4] = {};                         // P, rounded, as the left operand of PV

  // The warp's first row in the Q tile. A function: as a member, beside arrays, it would cost registers (phase 13).
  static __device__ int warp_row() { return threadIdx.x / 32 * 16; }

  // #region begin: Q, once
  // Once Q is there.
  __device__ void begin() {
#pragma unroll
    for (int d = 0; d < D; d += 16)
      if (kKeepQ) load_a(q[d / 16 % std::size(q)], tiles.Q, warp_row(), d);
  }
  // #endregion

  // S = Q Kᵀ: 16 keys at a time.
  __device__ void scores(const std::uint16_t (&K)[Bc][D]) {
#pragma unroll
    for (float& x : s) x = 0;
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      unsigned(&a)[4] = q[d / 16 % std::size(q)];
      if (!kKeepQ) load_a(a, tiles.Q, warp_row(), d);
#pragma unroll
      for (int n = 0; n < Bc / 8; n += 2) {
        unsigned k[4];
        load_b_transposed(k, K, n * 8, d);
        mma_m16n8k16<T>(c_fragment(s, n), a, {k[0], k[1]}, c_fragment(s, n));
        mma_m16n8k16<T>(c_fragment(s, n + 1), a, {k[2], k[3]}, c_fragment(s, n + 1));
      }
    }
  }

  __device__ __forceinline__ void begin(int first_row, int full) {
    row = first_row + my_row;
    masked = scale_log2 < 0 ? 0 : full;  // from this tile on; all where signs must be turned
    seen[0] = band.end(row) - lane % 4 * 2, seen[1] = band.end(row + 8) - lane % 4 * 2;
  }
  __device__ __forceinline__ void probabilities(int tile) {
    if (tile >= masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
    softmax(s, rows, alpha, c);
    trace_value("m", row, rows.m[0]), trace_value("alpha", row, alpha[0]);
    trace_value("m", row + 8, rows.m[1]), trace_value("alpha", row + 8, alpha[1]);
  }

  // O += P V: 16 keys at a time, 16 columns at a time.
  __device__ void add_output(const std::uint16_t (&V)[Bc][D]) {
#pragma unroll
    for (int k = 0; k < Bc; k += 16)
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned v[4];
        load_b(v, V, k, n * 8);
        mma_m16n8k16<T>(c_fragment(o, n), p[k / 16], {v[0], v[1]}, c_fragment(o, n));
        mma_m16n8k16<T>(c_fragment(o, n + 1), p[k / 16], {v[2], v[3]}, c_fragment(o, n + 1));
      }
  }

  // A K/V tile.
  __device__ void step(int tile) {
    scores(tiles.K[tile % 2]);
    probabilities(tile);
    rescale(o, alpha);
    round_p<T>(p, s);
    add_output(tiles.V[tile % 2]);
  }

  __device__ __forceinline__ void finish(Head<T> O, float* LSE) {
    float factor[2];
    finish_rows(rows, factor, LSE, row, band.Sq, c);
    store_output(o, factor, O, row);
  }
};

// What a block does: a Q tile of a head.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br * 2, 1)
    attention(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, H, Sk, D]*/,
              Heads<const T> V /*[B, H, Sk, D]*/, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, Band<int> band, int B, int H) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const Work work = work_of_block(B * H, band.cuts_right());
  const int b = work.head / H, h = work.head % H, first_row = work.q_tile * Br;
  const TileRange range = tile_range<Br, Bc>(first_row, band);
  Warp<T, D, Br, Bc> warp{tiles, band, scale_log2};
  warp.begin(first_row, range.full);

  const auto begin_copies = [&](int tile) {
    load_tile<Br * 2>(tiles.K[tile % 2], K.head(b, h), tile * Bc, band.end(band.Sq - 1));
    load_tile<Br * 2>(tiles.V[tile % 2], V.head(b, h), tile * Bc, band.end(band.Sq - 1));
    cp_async_commit();
  };
  load_tile<Br * 2>(tiles.Q, Q.head(b, h), first_row, band.Sq);
  if (range.seen > 0) begin_copies(range.seen - 1);

  for (int tile = range.seen - 1; tile >= 0; --tile) {
    cp_async_wait<0>();
    __syncthreads();  // all threads' copies are there; and all have read the other stage, which the next ones fill
    if (tile > 0) begin_copies(tile - 1);
    if (tile == range.seen - 1) warp.begin();
    warp.step(tile);
  }
  warp.finish(O.head(b, h), LSE ? LSE + work.head * O.rows : nullptr);
}

// The host's side: the shared struct, the grid, the launch: a warp for each 16 rows.
struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = attention<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const std::int64_t heads = std::int64_t{p.B} * p.H;
    const auto grid = static_cast<unsigned>((p.Q.rows + Br - 1) / Br * heads);
    kernel<<<grid, Br * 2, shared_bytes, p.stream>>>(p.Q, p.K, p.V, p.O, p.LSE, p.scale_log2, narrow(p.band), p.B, p.H);
  }
};

}  // namespace flash::phase14::inline FLASH_MACHINE::order
