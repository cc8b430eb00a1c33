// Phase 11: tensor cores without bank conflicts. New since 10: ldmatrix loads four 8 x 8 matrices with one instruction,
// and the pieces of 16 bytes of a row change places by XOR with the row's number (a swizzle).
// Run it: ./flash tour 11     Test it: ./flash test 11
#pragma once
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/11-swizzle/phase.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase11::inline FLASH_MACHINE {

// Shared memory of a block: elements of 16 bits, as bits. Element (row, column) of a tile is at [row][swizzled(…)].
template <int D, int Br, int Bc>
struct Tiles {
  alignas(16) std::uint16_t Q[Br][D];
  alignas(16) std::uint16_t K[Bc][D];
  alignas(16) std::uint16_t V[Bc][D];
};

// #region swizzled
// 8 rows in one place of a tile begin in the same bank where rows are 128 bytes or a multiple. So piece c of row r (8
// elements, 16 bytes, 4 banks) lies where piece c ^ (r % 8) would be: the 8 rows take 8 different groups of 4 banks.
__device__ inline int swizzled(int row, int column) {
  return column ^ row % 8 * 8;
}
// #endregion

// Row i sees keys 0 … visible(i) - 1. Top-left: shift = 0. Bottom-right: shift = Sk - Sq. No mask: shift = Sk.
__device__ inline std::int64_t visible(std::int64_t i, std::int64_t shift, std::int64_t Sk) {
  return max(std::int64_t{0}, min(i + 1 + shift, Sk));
}

// K/V tiles 0 … full - 1 are seen whole by each row of a Q tile, full … seen - 1 in part, the others by no row; nor are
// the keys from `keys` on.
struct TileRange {
  std::int64_t full, seen, keys;
};
template <int Br, int Bc>
__device__ TileRange tile_range(std::int64_t first_row, std::int64_t Sq, std::int64_t Sk, std::int64_t shift) {
  const std::int64_t keys = visible(min(first_row + Br, Sq) - 1, shift, Sk);
  return {visible(first_row, shift, Sk) / Bc, (keys + Bc - 1) / Bc, keys};
}

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
      store8(&tile[r][swizzled(r, c)], inside ? load8(&bits[(first + r) * from.stride + c]) : zeros);
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

// Fragments of mma.m16n8k16 (PTX ISA). With g = lane / 4 and t = lane % 4 a lane holds, two elements a register,
//   of A [16,16]: rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8 (and the next one);
//   of B [16,8]:  rows 2t, 2t + 8 (and the next one), column g;
//   of C [16,8]:  rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
// #region load-a
// ldmatrix hands out 8 x 8 matrices so that they are these registers; each lane says where one row of one of them is:
// A, 16 x 16: upper left, lower left, upper right, lower right.
template <int Rows, int D>
__device__ void load_a(unsigned (&a)[4], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int lane = threadIdx.x % 32, r = row + lane % 16;
  ldmatrix_x4(a, &tile[r][swizzled(r, column + lane / 16 * 8)]);
}
// #endregion
// #region load-b
// Two B of 16 x 8, side by side, out of rows that are their columns (K: S = QKᵀ), or that are their rows (V).
template <int Rows, int D>
__device__ void load_b_transposed(unsigned (&b)[4], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int lane = threadIdx.x % 32, r = row + lane / 16 * 8 + lane % 8;
  ldmatrix_x4(b, &tile[r][swizzled(r, column + lane / 8 % 2 * 8)]);
}
template <int Rows, int D>
__device__ void load_b(unsigned (&b)[4], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int lane = threadIdx.x % 32, r = row + lane % 16;
  ldmatrix_x4_trans(b, &tile[r][swizzled(r, column + lane / 16 * 8)]);
}
// #endregion

// What a block does with Q tile number q_tile of a head.
template <class T, int D, int Br, int Bc>
__device__ void attend(Head<const T> Q /*[Sq, D]*/, Head<const T> K /*[Sk, D]*/, Head<const T> V /*[Sk, D]*/,
                       Head<T> O /*[Sq, D]*/, float* LSE /*[Sq] or null*/, float scale_log2 /*scale · log2 e*/,
                       std::int64_t shift, std::int64_t q_tile) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  constexpr int kThreads = Br * 2;

  // Which rows are mine? The warp's are 16; two of them, 8 apart, are the lane's, with columns 2t, 2t + 1 of each 8.
  const int warp_row = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const std::int64_t first_row = q_tile * Br, my_row = first_row + warp_row + g;
  load_tile<kThreads>(tiles.Q, Q, first_row, Q.rows);

  // The state of online softmax (phase 02), in registers, as rows.cuh says.
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {}, o[D / 2] = {};

  const TileRange range = tile_range<Br, Bc>(first_row, Q.rows, K.rows, shift);
  for (std::int64_t tile = 0; tile < range.seen; ++tile) {
    const std::int64_t first_key = tile * Bc;
    trace_mark(tile < range.full ? "full" : "masked", tile);
    load_tile<kThreads>(tiles.K, K, first_key, range.keys);
    load_tile<kThreads>(tiles.V, V, first_key, range.keys);
    __syncthreads();  // the tiles are complete: each was filled by all threads

    // #region scores
    // S = Q Kᵀ: 16 rows of the warp, 16 keys at a time.
    float s[Bc / 2] = {};
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      unsigned q[4];
      load_a(q, tiles.Q, warp_row, d);
#pragma unroll
      for (int n = 0; n < Bc / 8; n += 2) {
        unsigned k[4];
        load_b_transposed(k, tiles.K, n * 8, d);
        mma_m16n8k16<T>(c_fragment(s, n), q, {k[0], k[1]}, c_fragment(s, n));
        mma_m16n8k16<T>(c_fragment(s, n + 1), q, {k[2], k[3]}, c_fragment(s, n + 1));
      }
    }
    // #endregion

    // Scale, in base 2. Keys beyond the row's diagonal or the end, in masked tiles only: -inf.
#pragma unroll
    for (float& x : s) x *= scale_log2;
    if (tile >= range.full) {
      int seen[2];
      for (int r = 0; r < 2; ++r) {
        const std::int64_t left = visible(my_row + 8 * r, shift, K.rows) - first_key;
        seen[r] = static_cast<int>(min(left, std::int64_t{Bc})) - 2 * t;
      }
      hide(s, seen);
    }

    // The row's maximum so far. While no key was seen m is -inf, and -inf - -inf would be NaN: subtract 0 then.
    float m_new[2] = {m[0], m[1]}, m_safe[2], alpha[2];
    grow(m_new, s);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_new[r] = row_max(m_new[r]);
      m_safe[r] = m_new[r] == -INFINITY ? 0.0f : m_new[r];
      alpha[r] = exp2f(m[r] - m_safe[r]);
      l[r] *= alpha[r];
      m[r] = m_new[r];
      trace_value("m", my_row + 8 * r, m[r]), trace_value("alpha", my_row + 8 * r, alpha[r]);
    }

    // P = exp(S - m), rounded to T as tensor cores take it; l sums the unrounded p, of this lane's columns for now.
#pragma unroll
    for (int i = 0; i < Bc / 2; i += 2) {
      const int r = row_of(i);
      s[i] = exp2f(s[i] - m_safe[r]), s[i + 1] = exp2f(s[i + 1] - m_safe[r]);
      l[r] += s[i] + s[i + 1];
    }
    unsigned p[Bc / 16][4];
    round_p<T>(p, s);

    // O = alpha O + P V: 16 keys at a time, 16 columns at a time.
    rescale(o, alpha);
#pragma unroll
    for (int k = 0; k < Bc; k += 16)
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned v[4];
        load_b(v, tiles.V, k, n * 8);
        mma_m16n8k16<T>(c_fragment(o, n), p[k / 16], {v[0], v[1]}, c_fragment(o, n));
        mma_m16n8k16<T>(c_fragment(o, n + 1), p[k / 16], {v[2], v[3]}, c_fragment(o, n + 1));
      }
    // #endregion
    __syncthreads();  // all threads have read K and V: the next round may overwrite them
  }

  // One division at the end. A row that saw no key has l = 0 and stays 0. Rows beyond Sq are not stored.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int64_t row = my_row + 8 * r;
    const float sum = row_sum(l[r]), divisor = sum == 0 ? 1.0f : sum;
    trace_value("l", row, sum);
    if (row >= O.rows) continue;
    T* o_row = O.data + row * O.stride;  // [D]
#pragma unroll
    for (int i = 0; i < D / 2; ++i) {
      const int column = 2 * t + column_of(i);
      if (row_of(i) == r && column < O.cols) o_row[column] = round_to<T>(o[i] / divisor);
    }
    if (LSE && t == 0) LSE[row] = log_sum(m[r], sum);
  }
}

// The grid: x is the Q tile, y the head. y is 65,535 at most; further heads continue in z.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br * 2)
    attention(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, H, Sk, D]*/,
              Heads<const T> V /*[B, H, Sk, D]*/, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, std::int64_t shift, int B, int H) {
  const unsigned head = blockIdx.z * gridDim.y + blockIdx.y;
  const int b = head / H, h = head % H;
  if (b >= B) return;
  float* lse = LSE ? LSE + head * O.rows : nullptr;
  attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), lse, scale_log2, shift, blockIdx.x);
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
    kernel<<<grid, Br * 2, shared_bytes, p.stream>>>(p.Q, p.K, p.V, p.O, p.LSE, p.scale_log2, p.shift, p.B, p.H);
  }
};

}  // namespace flash::phase11::inline FLASH_MACHINE
