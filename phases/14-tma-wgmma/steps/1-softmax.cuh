// 1-softmax.cuh: online softmax in the words of the Hopper phases: the scale goes into a multiply-add.
// New since phase 12: ../softmax.cuh; m is the maximum of unscaled scores, and a negative scale turns their signs.
// Run it: build/default/bin/phase14_steps; the next step: 2-rows.cuh
#pragma once
#include "phases/10-tensor-cores/keys.cuh"
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/11-swizzle/fragments.cuh"
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/14-tma-wgmma/softmax.cuh"  // Rows, softmax
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase14::inline FLASH_MACHINE::words {

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
  const std::int64_t first_row;   // of the Q tile
  const Band<std::int64_t> band;  // which keys its rows see
  const float scale_log2;         // scale · log2 e
  const float c = factor_of(scale_log2), sign = sign_of(scale_log2);
  // #region keep-q: Q's fragments stay
  static constexpr bool kKeepQ = D <= 128;  // else there are too few registers
  unsigned q[kKeepQ ? D / 16 : 1][4] = {};
  // #endregion

  Rows rows = {};                      // m and l
  float o[D / 2] = {}, alpha[2] = {};  // O; by what O must be multiplied

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
  __device__ void scores(float (&s)[Bc / 2], const std::uint16_t (&K)[Bc][D]) {
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

  // -inf for keys beyond the row's diagonal or the end. Columns are counted from first_key, so that int holds them.
  __device__ void mask(float (&s)[Bc / 2], std::int64_t first_key) const {
    int seen[2];
    for (int r = 0; r < 2; ++r) {
      const std::int64_t i = first_row + warp_row() + 8 * r + lane_row();
      seen[r] = static_cast<int>(min(band.end(i) - first_key, std::int64_t{Bc})) - lane_column();
    }
    hide(s, seen, sign);
  }

  // S becomes P, rounded to T as tensor cores take it; l sums the unrounded, of this lane's columns for now.
  __device__ void probabilities(unsigned (&p)[Bc / 16][4], float (&s)[Bc / 2]) {
    softmax(s, rows, alpha, c);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int64_t row = first_row + warp_row() + 8 * r + lane_row();
      trace_value("m", row, rows.m[r]), trace_value("alpha", row, alpha[r]);
    }
    rescale(o, alpha);
    round_p<T>(p, s);
  }

  // O += P V: 16 keys at a time, 16 columns at a time.
  __device__ void add_output(const unsigned (&p)[Bc / 16][4], const std::uint16_t (&V)[Bc][D]) {
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

  // A K/V tile. masked: some row may not see all of it.
  __device__ void multiply(std::int64_t tile, bool masked) {
    float s[Bc / 2] = {};
    unsigned p[Bc / 16][4];
    scores(s, tiles.K[tile % 2]);
    if (masked || scale_log2 < 0) mask(s, tile * Bc);
    probabilities(p, s);
    add_output(p, tiles.V[tile % 2]);
  }

  // One division at the end. A row that saw no key has l = 0 and stays 0. Rows beyond Sq are not stored.
  __device__ void store(Head<T> O /*[Sq, D]*/, float* LSE /*[Sq] or null*/) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int64_t row = first_row + warp_row() + 8 * r + lane_row();
      const float sum = row_sum(rows.l[r]), divisor = sum == 0 ? 1.0f : sum;
      trace_value("l", row, sum);
      if (row >= O.rows) continue;
      T* o_row = O.data + row * O.stride;  // [D]
#pragma unroll
      for (int i = 0; i < D / 2; ++i) {
        const int column = column_of(i) + lane_column();
        if (row_of(i) == r && column < O.cols) o_row[column] = round_to<T>(o[i] / divisor);
      }
      if (LSE && lane_column() == 0) LSE[row] = log_sum(rows.m[r] * c, sum);
    }
  }
};

// What a block does with Q tile number q_tile of a head.
template <class T, int D, int Br, int Bc>
__device__ void attend(Head<const T> Q /*[Sq, D]*/, Head<const T> K /*[Sk, D]*/, Head<const T> V /*[Sk, D]*/,
                       Head<T> O /*[Sq, D]*/, float* LSE /*[Sq] or null*/, float scale_log2 /*scale · log2 e*/,
                       Band<std::int64_t> band, std::int64_t q_tile) {
  constexpr int kThreads = Br * 2;
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const std::int64_t first_row = q_tile * Br;
  Warp<T, D, Br, Bc> warp{tiles, first_row, band, scale_log2};
  const KeyTiles range = key_tiles<Br, Bc>(first_row, band);

  // #region begin-copies: of a K/V tile
  const auto begin_copies = [&](std::int64_t tile) {
    load_tile<kThreads>(tiles.K[tile % 2], K, tile * Bc, range.keys);
    load_tile<kThreads>(tiles.V[tile % 2], V, tile * Bc, range.keys);
    cp_async_commit();
  };
  load_tile<kThreads>(tiles.Q, Q, first_row, Q.rows);
  if (range.seen > 0) begin_copies(0);
  // #endregion

  // #region loop: over the K/V tiles
  for (std::int64_t tile = 0; tile < range.seen; ++tile) {
    trace_mark(tile < range.full ? "full" : "masked", tile);
    cp_async_wait<0>();
    __syncthreads();  // all threads' copies are there; and all have read the other stage, which the next ones fill
    if (tile + 1 < range.seen) begin_copies(tile + 1);
    if (tile == 0) warp.begin();
    warp.multiply(tile, tile >= range.full);
  }
  warp.store(O, LSE);
}
// #endregion

// The grid: x is the Q tile, y the head. y is 65,535 at most; further heads continue in z.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br * 2)
    attention(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, H, Sk, D]*/,
              Heads<const T> V /*[B, H, Sk, D]*/, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, Band<std::int64_t> band, int B, int H) {
  const unsigned head = blockIdx.z * gridDim.y + blockIdx.y;
  const int b = head / H, h = head % H;
  if (b >= B) return;
  float* lse = LSE ? LSE + head * O.rows : nullptr;
  attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), lse, scale_log2, band, blockIdx.x);
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
    const dim3 grid = grid_of(p.Q.rows, Br, std::int64_t{p.B} * p.H);
    kernel<<<grid, Br * 2, shared_bytes, p.stream>>>(p.Q, p.K, p.V, p.O, p.LSE, p.scale_log2, p.band, p.B, p.H);
  }
};

}  // namespace flash::phase14::inline FLASH_MACHINE::words
