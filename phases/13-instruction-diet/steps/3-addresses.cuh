// 3-addresses.cuh: addresses in shared memory are constants away from a few pointers.
// New since 2-loops.cuh: the swizzle of a copy is worked out once per tile, that of ldmatrix four times.
// Run it: build/default/bin/phase13_steps; the next step: 4-output.cuh
#pragma once
#include "phases/13-instruction-diet/attention.cuh"

namespace flash::phase13::inline FLASH_MACHINE::addresses {

using T = __nv_bfloat16;
using phase12::load_a, phase12::swizzled;
using Fragments = phase13::Fragments<128>;  // where a lane's row of ldmatrix is, for all fragments of a tile
constexpr int D = 128, threads = 128;
constexpr int row_tiles = 1;                 // of 16 rows, per warp
constexpr int rows = 2 * row_tiles;          // of a lane, 8 apart; row i is in s[i / 2], o[i / 2]
constexpr int Br = 64 * row_tiles, Bc = 64;  // rows of a Q tile, of a K/V tile

struct Tiles {
  alignas(16) std::uint16_t Q[Br][D];
  alignas(16) std::uint16_t K[2][Bc][D], V[2][Bc][D];  // tile j is in stage j % 2
};

// Begins to copy rows of a matrix, HBM -> shared memory, to be waited for.
template <int Rows>
__device__ void load_tile(std::uint16_t (&tile)[Rows][D], const T* from /*[Rows, D]*/) {
  const int r = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8) * 8;
  std::uint16_t* to = &tile[r][swizzled(r, c)];  // rows are copied 8 apart: all have the swizzle of the first
  static_assert(threads / (D / 8) == 8);
#pragma unroll
  for (int i = 0; i < Rows; i += 8) cp_async_16(to + i * D, &from[(i + r) * D + c], 16);
}

__global__ void __launch_bounds__(threads)
    attention(const T* Q /*[heads, N, D]*/, const T* K /*[heads, N, D]*/, const T* V /*[heads, N, D]*/,
              T* O /*[heads, N, D]*/, float* LSE /*[heads, N]*/, int N, float c /*scale · log2 e, > 0*/, bool causal) {
  Tiles& tiles = shared<Tiles>();
  const int q_tile = blockIdx.x, head = blockIdx.y;

  // Which rows are mine? Of each 16 rows of the warp two, 8 apart, are the lane's, with columns 2t, 2t + 1 of each 8.
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp_row = threadIdx.x / 32 * 16 * row_tiles;
  const int first_row = q_tile * Br;
  const std::int64_t start = std::int64_t{head} * N;  // the head's first row
  Q += (start + first_row) * D, O += (start + first_row) * D, LSE += start + first_row, K += start * D, V += start * D;

  // The state of online softmax (phase 02), in registers.
  float m[rows], l[rows] = {}, o[row_tiles][D / 8][4] = {};
#pragma unroll
  for (int i = 0; i < rows; ++i) m[i] = -INFINITY;

  // K/V tiles that the Q tile sees, and those that all of its rows see whole.
  const int seen = causal ? (first_row + Br) / Bc : N / Bc, full = causal ? first_row / Bc : seen;
  const auto begin_copies = [&](int tile) {
    load_tile(tiles.K[tile % 2], K + tile * Bc * D);
    load_tile(tiles.V[tile % 2], V + tile * Bc * D);
    cp_async_commit();
  };
  int tile = seen - 1;  // from the last tile to the first: the masked ones come first
  load_tile(tiles.Q, Q);
  begin_copies(tile);
  cp_async_wait<0>();
  __syncthreads();  // Q is complete: all threads have copied some of it
  unsigned q[D / 16][4];
#pragma unroll
  for (int d = 0; d < D; d += 16) load_a(q[d / 16], tiles.Q, warp_row, d);

  const auto step = [&](auto masked) {
    const int first_key = tile * Bc;
    cp_async_wait<0>();
    __syncthreads();  // the copies of all threads are there; and all have read the stage that the next ones fill
    if (tile > 0) begin_copies(tile - 1);
    const Fragments k_rows(&tiles, &tiles.K[tile % 2][0][0], lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
    const Fragments v_rows(&tiles, &tiles.V[tile % 2][0][0], lane % 16, lane / 16 * 8);

    // S = Q Kᵀ: 16 rows and 16 keys at a time.
    float s[row_tiles][Bc / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D; d += 16) {
#pragma unroll
      for (int n = 0; n < Bc / 8; n += 2) {
        unsigned k[4];
        ldmatrix_x4(k, k_rows.at(n * 8, d));
#pragma unroll
        for (int rt = 0; rt < row_tiles; ++rt) {
          mma_m16n8k16<T>(s[rt][n], q[d / 16], {k[0], k[1]}, s[rt][n]);
          mma_m16n8k16<T>(s[rt][n + 1], q[d / 16], {k[2], k[3]}, s[rt][n + 1]);
        }
      }
    }

    // Keys beyond the row's diagonal, in masked tiles only: -inf.
    if (masked) {
#pragma unroll
      for (int i = 0; i < rows * Bc / 8; ++i) {
        const int row = i / (Bc / 8), n = i % (Bc / 8);  // of the lane's
        const int keys = first_row + warp_row + row * 8 + g + 1 - (first_key + n * 8 + 2 * t);
        if (keys <= 0) s[row / 2][n][row % 2 * 2] = -INFINITY;
        if (keys <= 1) s[row / 2][n][row % 2 * 2 + 1] = -INFINITY;
      }
    }

    // The row's maximum so far; the old state counts less. (Each row sees a key of its first tile: m is finite.)
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      float m_new = m[i];
#pragma unroll
      for (int n = 0; n < Bc / 8; ++n) m_new = fmaxf(m_new, fmaxf(s[i / 2][n][i % 2 * 2], s[i / 2][n][i % 2 * 2 + 1]));
      m_new = row_max(m_new);
      const float alpha = ex2_approx_ftz((m[i] - m_new) * c);
      m[i] = m_new;
      l[i] *= alpha;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) o[i / 2][n][i % 2 * 2] *= alpha, o[i / 2][n][i % 2 * 2 + 1] *= alpha;
    }

    // P = exp2(c · S - c · m), rounded to T as tensor cores take it; l sums the unrounded of the lane's columns.
    unsigned p[row_tiles][Bc / 16][4];
#pragma unroll
    for (int i = 0; i < rows * Bc / 8; ++i) {
      const int row = i / (Bc / 8), n = i % (Bc / 8);
      const float left = ex2_approx_ftz(fmaf(s[row / 2][n][row % 2 * 2], c, -m[row] * c));
      const float right = ex2_approx_ftz(fmaf(s[row / 2][n][row % 2 * 2 + 1], c, -m[row] * c));
      l[row] += left + right;
      p[row / 2][n / 2][n % 2 * 2 + row % 2] = pack<T>(left, right);
    }

    // O += P V: 16 keys and 16 columns at a time.
#pragma unroll
    for (int k = 0; k < Bc; k += 16) {
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned v[4];
        ldmatrix_x4_trans(v, v_rows.at(k, n * 8));
#pragma unroll
        for (int rt = 0; rt < row_tiles; ++rt) {
          mma_m16n8k16<T>(o[rt][n], p[rt][k / 16], {v[0], v[1]}, o[rt][n]);
          mma_m16n8k16<T>(o[rt][n + 1], p[rt][k / 16], {v[2], v[3]}, o[rt][n + 1]);
        }
      }
    }
  };
#pragma unroll 1
  for (; tile >= full; --tile) step(std::true_type());
#pragma unroll 1
  for (; tile >= 0; --tile) step(std::false_type());

#pragma unroll
  for (int i = 0; i < rows; ++i) {  // one division at the end; LSE = log Σ exp(s)
    const int row = warp_row + i * 8 + g;
    const float sum = row_sum(l[i]);
#pragma unroll
    for (int n = 0; n < D / 4; ++n)
      O[row * D + n / 2 * 8 + 2 * t + n % 2] = round_to<T>(o[i / 2][n / 2][i % 2 * 2 + n % 2] / sum);
    if (t == 0) LSE[row] = fmaf(m[i] * c, 0.693147181f, logf(sum));
  }
}

}  // namespace flash::phase13::inline FLASH_MACHINE::addresses
