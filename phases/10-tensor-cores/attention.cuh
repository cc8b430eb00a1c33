// Phase 10: tensor cores. A warp owns 16 rows of the Q tile; mma.m16n8k16 multiplies S = QKᵀ and PV for all of them.
// New since 08: rows and columns are spread over a warp's lanes (fragments), a row's maximum and sum over four lanes.
// Run it: ./flash tour 10     Test it: ./flash test 10
#pragma once
#include "phases/10-tensor-cores/fragments.cuh"
#include "phases/10-tensor-cores/keys.cuh"
#include "phases/10-tensor-cores/phase.hpp"
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase10::inline FLASH_MACHINE {

// #region tiles: shared memory
// Shared memory of a block: elements of 16 bits, as bits, rows as in HBM.
template <int D, int Br, int Bc>
struct Tiles {
  alignas(16) std::uint16_t Q[Br][D];
  alignas(16) std::uint16_t K[Bc][D];
  alignas(16) std::uint16_t V[Bc][D];
};
// #endregion

// #region load-tile: HBM to shared memory
// HBM -> shared memory: rows first … first + Rows - 1, zeros from row `end` and column from.cols on (0 · NaN is NaN).
// 16 bytes at a time where base, stride and D are multiples of that, else element by element.
template <int kThreads, int D, int Rows, class T>
__device__ void load_tile(std::uint16_t (&tile)[Rows][D], Head<const T> from, std::int64_t first, std::int64_t end) {
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from.data);
  if (in_pieces_of_8(from)) {
#pragma unroll
    for (int i = 0; i < Rows * D / 8; i += kThreads) {
      const int r = (i + threadIdx.x) / (D / 8), c = (i + threadIdx.x) % (D / 8) * 8;
      const bool inside = first + r < end && c < from.cols;
      const uint4 zeros = make_uint4(0, 0, 0, 0);
      store8(&tile[r][c], inside ? load8(&bits[(first + r) * from.stride + c]) : zeros);
    }
    return;
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < Rows * D; i += kThreads) {
    const int r = i / D, c = i % D;
    const bool inside = first + r < end && c < from.cols;
    tile[r][c] = inside ? bits[(first + r) * from.stride + c] : std::uint16_t{0};
  }
}
// #endregion

// #region warp: what a lane holds
// What a lane holds of its warp's 16 rows of a Q tile, and what the warp does with a K/V tile. Two of the rows are the
// lane's, 8 apart. S and O are products, in registers as rows.cuh says.
template <class T, int D, int Br, int Bc>
struct Warp {
  Tiles<D, Br, Bc>& tiles;
  const std::int64_t first_row;   // of the Q tile
  const Band<std::int64_t> band;  // which keys its rows see
  const float scale_log2;         // scale · log2 e: P = exp2(scale_log2 · S - m)

  float m[2] = {-INFINITY, -INFINITY}, l[2] = {}, o[D / 2] = {};  // the state of online softmax (phase 02)

  // The warp's first row in the Q tile. A function: as a member, beside arrays, it would cost registers (phase 13).
  static __device__ int warp_row() { return threadIdx.x / 32 * 16; }
  // #endregion

  // #region scores: S = Q Kᵀ
  // S = Q Kᵀ: 8 keys at a time.
  __device__ void scores(float (&s)[Bc / 2], const std::uint16_t (&K)[Bc][D]) const {
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      unsigned a[4];
      load_a(a, tiles.Q, warp_row(), d);
#pragma unroll
      for (int n = 0; n < Bc / 8; ++n) {
        unsigned k[2];
        load_b_transposed(k, K, n * 8, d);
        mma_m16n8k16<T>(c_fragment(s, n), a, k, c_fragment(s, n));
      }
    }
  }
  // #endregion

  // #region mask: -inf for what a row does not see
  // -inf for keys beyond the row's diagonal or the end. Columns are counted from first_key, so that int holds them.
  // Phase 11 says this by hide() of rows.cuh. Here ptxas would then load each fragment right before its use: up to 8 %
  // slower at D = 128 (H200).
  __device__ void mask(float (&s)[Bc / 2], std::int64_t first_key) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int64_t row = first_row + warp_row() + 8 * r + lane_row();
      const int seen = static_cast<int>(min(band.end(row) - first_key, std::int64_t{Bc}));
#pragma unroll
      for (int i = 0; i < Bc / 2; ++i)
        if (row_of(i) == r && column_of(i) + lane_column() >= seen) s[i] = -INFINITY;
    }
  }
  // #endregion

  // #region maximum: m follows, the old state counts less
  // m becomes the rows' maximum so far, and the old state counts less. While no key was seen m is -inf, and -inf - -inf
  // would be NaN: 0 is subtracted then.
  __device__ void follow(const float (&s)[Bc / 2]) {
    float top[2] = {m[0], m[1]}, alpha[2];
    grow(top, s);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float m_new = row_max(top[r]), m_safe = m_new == -INFINITY ? 0.0f : m_new;
      alpha[r] = exp2f(m[r] - m_safe);
      m[r] = m_new;
      l[r] *= alpha[r];
      const std::int64_t row = first_row + warp_row() + 8 * r + lane_row();
      trace_value("m", row, m_new), trace_value("alpha", row, alpha[r]);
    }
    rescale(o, alpha);
  }
  // #endregion

  // #region probabilities: P = exp(S - m)
  // P = exp(S - m), rounded to T as tensor cores take it; l sums the unrounded, of this lane's columns for now.
  __device__ void probabilities(unsigned (&p)[Bc / 16][4], float (&s)[Bc / 2]) {
    const float m_safe[2] = {m[0] == -INFINITY ? 0.0f : m[0], m[1] == -INFINITY ? 0.0f : m[1]};
#pragma unroll
    for (int i = 0; i < Bc / 2; i += 2) {
      const int r = row_of(i);
      s[i] = exp2f(s[i] - m_safe[r]), s[i + 1] = exp2f(s[i + 1] - m_safe[r]);
      l[r] += s[i] + s[i + 1];
    }
    round_p<T>(p, s);
  }
  // #endregion

  // #region output-product: O += P V
  // O += P V: 16 keys at a time, 8 columns at a time.
  __device__ void add_output(const unsigned (&p)[Bc / 16][4], const std::uint16_t (&V)[Bc][D]) {
#pragma unroll
    for (int k = 0; k < Bc; k += 16)
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        unsigned v[2];
        load_b(v, V, k, n * 8);
        mma_m16n8k16<T>(c_fragment(o, n), p[k / 16], v, c_fragment(o, n));
      }
  }
  // #endregion

  // #region multiply: a K/V tile, from S to O
  // A K/V tile. masked: some row may not see all of it.
  __device__ void multiply(std::int64_t tile, bool masked) {
    float s[Bc / 2] = {};
    unsigned p[Bc / 16][4];
    scores(s, tiles.K);
#pragma unroll
    for (float& x : s) x *= scale_log2;
    if (masked) mask(s, tile * Bc);
    follow(s);
    probabilities(p, s);
    add_output(p, tiles.V);
  }
  // #endregion

  // #region output: O / l and LSE
  // One division at the end. A row that saw no key has l = 0 and stays 0. Rows beyond Sq are not stored.
  __device__ void store(Head<T> O /*[Sq, D]*/, float* LSE /*[Sq] or null*/) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int64_t row = first_row + warp_row() + 8 * r + lane_row();
      const float sum = row_sum(l[r]), divisor = sum == 0 ? 1.0f : sum;
      trace_value("l", row, sum);
      if (row >= O.rows) continue;
      T* o_row = O.data + row * O.stride;  // [D]
#pragma unroll
      for (int i = 0; i < D / 2; ++i) {
        const int column = column_of(i) + lane_column();
        if (row_of(i) == r && column < O.cols) o_row[column] = round_to<T>(o[i] / divisor);
      }
      if (LSE && lane_column() == 0) LSE[row] = log_sum(m[r], sum);
    }
  }
  // #endregion
};

// #region head: what a block does
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
  // #endregion

  // #region loop: over the K/V tiles
  load_tile<kThreads>(tiles.Q, Q, first_row, Q.rows);
  for (std::int64_t tile = 0; tile < range.seen; ++tile) {
    trace_mark(tile < range.full ? "full" : "masked", tile);
    load_tile<kThreads>(tiles.K, K, tile * Bc, range.keys);
    load_tile<kThreads>(tiles.V, V, tile * Bc, range.keys);
    __syncthreads();  // the tiles are complete: each was filled by all threads
    warp.multiply(tile, tile >= range.full);
    __syncthreads();  // all threads have read K and V: the next round may overwrite them
  }
  warp.store(O, LSE);
}
// #endregion

// #region grid: which block does what
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
// #endregion

// #region launch: the host's side
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
// #endregion

}  // namespace flash::phase10::inline FLASH_MACHINE
