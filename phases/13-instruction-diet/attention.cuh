// Phase 13: the products of phase 12 with fewer instructions around them. New: 32 rows per warp, scale inside exp2's
// multiply-add, O rescaled only when a maximum has grown, a loop for masked tiles and one for the others, and more.
// Run it: ./flash tour 13     Test it: ./flash test 13
#pragma once
#include <type_traits>

#include "phases/13-instruction-diet/phase.hpp"
#include "phases/common/kernel_phase.cuh"

namespace flash::phase13::inline FLASH_MACHINE {

// #region layout
// What fits into 255 registers and two blocks per multiprocessor (D = 256: one).
template <int D>
struct Layout {
  static constexpr int row_tiles = D <= 128 ? 2 : 1;  // of 16 rows, per warp
  static constexpr int stages = D <= 128 ? 2 : 1;     // one: V is copied while S is made, the next K while O is
  static constexpr bool keep_q = D <= 64;             // Q's fragments in registers
  static constexpr int blocks = D <= 128 ? 2 : 1;     // per multiprocessor
  static constexpr int threads(int Br) { return Br / (16 * row_tiles) * 32; }
};
// #endregion

// #region tiles
// Shared memory of a block: elements of 16 bits, as bits. Element (row, column) of a tile is at [row][swizzled(…)].
template <int D, int Br, int Bc>
struct Tiles {
  alignas(16) std::uint16_t Q[Br][D];  // in the end O's rows, on their way out
  alignas(16) std::uint16_t K[Layout<D>::stages][Bc][D];
  alignas(16) std::uint16_t V[Layout<D>::stages][Bc][D];
};
// #endregion

__device__ inline int swizzled(int row, int column) {
  return column ^ row % 8 * 8;
}

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

// #region load-tile
// Begins to copy HBM -> shared memory, to be waited for: rows first … first + Rows - 1, zeros from row `end` and column
// from.cols on (0 · NaN is NaN). kWhole: the tile ends before `end`. A thread copies one column of pieces of 16 bytes.
// Where base, stride or D are no multiples of that: element by element, at once.
template <bool kWhole, int kThreads, int D, int Rows, class T>
__device__ void load_tile(std::uint16_t (&tile)[Rows][D], Head<const T> from, std::int64_t first, std::int64_t end) {
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from.data);
  if (in_pieces_of_8(from)) {
    constexpr int kRowsAtOnce = kThreads / (D / 8);
    static_assert(kThreads % (D / 8) == 0 && Rows % kRowsAtOnce == 0);
    const int r0 = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8) * 8;
    const int rows = c >= from.cols ? 0 : kWhole ? Rows : static_cast<int>(min(end - first, std::int64_t{Rows}));
    const std::uint16_t* piece = &bits[(first + r0) * from.stride + c];  // not read where it is outside
#pragma unroll
    for (int r = r0; r < r0 + Rows; r += kRowsAtOnce, piece += kRowsAtOnce * from.stride)
      cp_async_16(&tile[r][swizzled(r, c)], piece, (kWhole ? rows > 0 : r < rows) ? 16 : 0);
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

// #region fragments
// Where a lane's row of ldmatrix is, for all fragments of a tile: 16 columns further on is an XOR of two bits of the
// address, which four pointers know; 8 rows or 64 columns further on is a constant.
template <int D>
struct Fragments {
  const std::uint16_t* column[4];

  __device__ Fragments(const std::uint16_t* tile, int row, int first_column) {
#pragma unroll
    for (int i = 0; i < 4; ++i) column[i] = &tile[row * D + swizzled(row, first_column + i * 16)];
  }
  // `down`: a multiple of 8; `right`: a multiple of 16.
  __device__ const std::uint16_t* at(int down, int right) const {
    return column[right / 16 % 4] + down * D + right / 64 * 64;
  }
};
// #endregion

// Of the four lanes that share a row: the maximum, the sum.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// #region head
// What a block does with Q tile number q_tile of a head.
template <class T, int D, int Br, int Bc>
__device__ void attend(Head<const T> Q /*[Sq, D]*/, Head<const T> K /*[Sk, D]*/, Head<const T> V /*[Sk, D]*/,
                       Head<T> O /*[Sq, D]*/, float* LSE /*[Sq] or null*/, float scale_log2 /*scale · log2 e*/,
                       std::int64_t shift, std::int64_t q_tile) {
  constexpr int kRowTiles = Layout<D>::row_tiles, kStages = Layout<D>::stages, kThreads = Layout<D>::threads(Br);
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();

  // Which rows are mine? Of each 16 rows of the warp two, 8 apart, are the lane's, with columns 2t, 2t + 1 of each 8.
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_row = threadIdx.x / 32 * 16 * kRowTiles;
  const std::int64_t first_row = q_tile * Br;
  const auto my_row = [&](int rt, int r) { return warp_row + rt * 16 + r * 8 + g; };  // of the Q tile

  // P = exp2(c · S - c · m). A negative scale turns the signs of Q; scale = 0 becomes tiny, since -inf · 0 is NaN.
  const float c = fmaxf(fabsf(scale_log2), 1e-30f);

  // The state of online softmax (phase 02), in registers: element i of o and s belongs to row i / 2. m is a maximum of
  // what was seen; any value will do, as long as P, l and O use the same.
  float m[kRowTiles][2], l[kRowTiles][2] = {}, o[kRowTiles][D / 8][4] = {};
#pragma unroll
  for (int rt = 0; rt < kRowTiles; ++rt) m[rt][0] = m[rt][1] = -INFINITY;
  // #endregion

  // #region first-copies
  // From the last tile to the first: only the first copies must look for the end of K and V.
  const TileRange range = tile_range<Br, Bc>(first_row, Q.rows, K.rows, shift);
  int tile = static_cast<int>(range.seen) - 1;
  const auto copy = [&](auto whole, auto& stages, Head<const T> from, int j) {
    load_tile<decltype(whole)::value, kThreads>(stages[j % kStages], from, std::int64_t{j} * Bc, range.keys);
  };
  const std::false_type last;
  const std::true_type whole;
  if (range.seen > 0) {
    load_tile<false, kThreads>(tiles.Q, Q, first_row, Q.rows);
    copy(last, tiles.K, K, tile);
    if (kStages == 2) copy(last, tiles.V, V, tile);
    cp_async_commit();
  }

  const Fragments<D> q_rows(&tiles.Q[0][0], warp_row + lane % 16, lane / 16 * 8);
  unsigned q[Layout<D>::keep_q ? kRowTiles : 1][Layout<D>::keep_q ? D / 16 : 1][4];
  if (range.seen > 0) {
    cp_async_wait<0>();
    __syncthreads();  // Q is complete: all threads have copied some of it
    if (scale_log2 < 0) {
      for (int i = lane; i < 16 * kRowTiles * D / 2; i += 32) {
        std::uint16_t* pair = &tiles.Q[warp_row][0] + 2 * i;
        store2(pair, load2(pair) ^ 0x80008000u);
      }
      __syncwarp();  // the rows are the warp's own; their signs are turned by all its lanes
    }
#pragma unroll
    for (int i = 0; i < kRowTiles * D / 16; ++i)
      if constexpr (Layout<D>::keep_q)
        ldmatrix_x4(q[i / (D / 16)][i % (D / 16)], q_rows.at(i / (D / 16) * 16, i % (D / 16) * 16));
  }
  // #endregion

  // #region tile-begins
  const auto step = [&](auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    const std::int64_t first_key = std::int64_t{tile} * Bc;
    trace_mark(kMasked ? "masked" : "full", tile);
    cp_async_wait<0>();
    __syncthreads();  // the copies of all threads are there; and all have read the stage that the next ones fill
    if (kStages == 1) copy(last, tiles.V, V, tile);
    if (kStages == 2 && tile > 0) copy(whole, tiles.K, K, tile - 1), copy(whole, tiles.V, V, tile - 1);
    cp_async_commit();
    const int stage = tile % kStages;

    // Does any row of the warp see any key of the tile?
    const bool sees = !kMasked || visible(first_row + warp_row + 16 * kRowTiles - 1, shift, K.rows) > first_key;
    // #endregion

    // #region scores
    // S = Q Kᵀ: 16 rows and 16 keys at a time.
    float s[kRowTiles][Bc / 8][4] = {};
    if (sees) {
      const Fragments<D> k_rows(&tiles.K[stage][0][0], lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
      for (int d = 0; d < D; d += 16) {
        unsigned a[kRowTiles][4];
#pragma unroll
        for (int rt = 0; rt < kRowTiles; ++rt)
          if constexpr (!Layout<D>::keep_q) ldmatrix_x4(a[rt], q_rows.at(rt * 16, d));
#pragma unroll
        for (int n = 0; n < Bc / 8; n += 2) {
          unsigned k[4];
          ldmatrix_x4(k, k_rows.at(n * 8, d));
#pragma unroll
          for (int rt = 0; rt < kRowTiles; ++rt) {
            const auto& rows = Layout<D>::keep_q ? q[rt % std::size(q)][d / 16 % std::size(q[0])] : a[rt];
            mma_m16n8k16<T>(s[rt][n], rows, {k[0], k[1]}, s[rt][n]);
            mma_m16n8k16<T>(s[rt][n + 1], rows, {k[2], k[3]}, s[rt][n + 1]);
          }
        }
      }
    }
    if (kStages == 1) {
      cp_async_wait<0>();
      __syncthreads();  // V is complete; and all have read K, which the next one overwrites
      if (tile > 0) copy(whole, tiles.K, K, tile - 1);
      cp_async_commit();
    }
    if (!sees) return;
    // #endregion

    // #region mask
    // -inf for keys beyond the row's diagonal or the end, by selection.
    if (kMasked)
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const std::int64_t left = visible(first_row + my_row(rt, r), shift, K.rows) - first_key;
          const int keys = static_cast<int>(min(left, std::int64_t{Bc}));
#pragma unroll
          for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
              if (n * 8 + 2 * t + i >= keys) s[rt][n][2 * r + i] = -INFINITY;
        }
    // #endregion

    // #region maximum
    // Has a maximum grown? Of the lane's own columns for now. Where all m are positive the bits of a float are
    // ordered as integers (a smaller one of either sign changes nothing), and there is a maximum of three integers.
    float top[kRowTiles][2];
    bool grown = false, below_zero = kMasked;
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) below_zero |= !(m[rt][0] >= 0) || !(m[rt][1] >= 0);
    const bool by_bits = !kMasked && !__any_sync(0xffffffffu, below_zero);
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (by_bits) {
          int bits = __float_as_int(m[rt][r]);
#pragma unroll
          for (int n = 0; n < Bc / 8; ++n)
            bits = __vimax3_s32(bits, __float_as_int(s[rt][n][2 * r]), __float_as_int(s[rt][n][2 * r + 1]));
          top[rt][r] = __int_as_float(bits);
        } else {
          top[rt][r] = m[rt][r];
#pragma unroll
          for (int n = 0; n < Bc / 8; ++n) top[rt][r] = fmaxf(top[rt][r], fmaxf(s[rt][n][2 * r], s[rt][n][2 * r + 1]));
        }
        grown |= top[rt][r] > m[rt][r];
      }
    // #endregion

    // #region rescale
    // If so: the maximum of all four lanes, and the old state counts less.
    if (__any_sync(0xffffffffu, grown))
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float m_new = row_max(top[rt][r]), m_safe = m_new == -INFINITY ? 0.0f : m_new;
          const float alpha = ex2_approx_ftz((m[rt][r] - m_safe) * c);
          m[rt][r] = m_new;
          l[rt][r] *= alpha;
#pragma unroll
          for (int n = 0; n < D / 8; ++n) o[rt][n][2 * r] *= alpha, o[rt][n][2 * r + 1] *= alpha;
        }
    // #endregion

    // #region probabilities
    // P, rounded to T as tensor cores take it; l sums the unrounded p, of this lane's columns for now.
    unsigned p[kRowTiles][Bc / 16][4];
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float m_safe = m[rt][r] == -INFINITY ? 0.0f : m[rt][r];  // no key was seen: -inf - -inf is NaN
        const bool huge = fabsf(m_safe * c) > 512;  // its rounding would show in P: subtract first then
        if (huge)
#pragma unroll
          for (int n = 0; n < Bc / 8; ++n) s[rt][n][2 * r] -= m_safe, s[rt][n][2 * r + 1] -= m_safe;
        const float base = huge ? 0.0f : m_safe * c;
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
          const float left = ex2_approx_ftz(fmaf(s[rt][n][2 * r], c, -base));
          const float right = ex2_approx_ftz(fmaf(s[rt][n][2 * r + 1], c, -base));
          l[rt][r] += left + right;
          p[rt][n / 2][n % 2 * 2 + r] = pack<T>(left, right);
        }
      }
    // #endregion

    // #region output-product
    // O += P V: 16 keys and 16 columns at a time.
    const Fragments<D> v_rows(&tiles.V[stage][0][0], lane % 16, lane / 16 * 8);
#pragma unroll
    for (int k = 0; k < Bc; k += 16)
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned v[4];
        ldmatrix_x4_trans(v, v_rows.at(k, n * 8));
#pragma unroll
        for (int rt = 0; rt < kRowTiles; ++rt) {
          mma_m16n8k16<T>(o[rt][n], p[rt][k / 16], {v[0], v[1]}, o[rt][n]);
          mma_m16n8k16<T>(o[rt][n + 1], p[rt][k / 16], {v[2], v[3]}, o[rt][n + 1]);
        }
      }
    // #endregion
  };
  // #region two-loops
#pragma unroll 1
  for (; tile >= range.full; --tile) step(std::true_type());
#pragma unroll 1
  for (; tile >= 0; --tile) step(std::false_type());
  // #endregion

  // #region output
  __syncwarp();  // all lanes have read their last rows of Q, which O overwrites

  // One division at the end; a row that saw no key has l = 0 and stays 0. O goes out through the warp's rows of Q,
  // which nobody else reads, so that neighbouring lanes store 16 bytes each of one row.
#pragma unroll
  for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = my_row(rt, r);
      const float sum = row_sum(l[rt][r]), inverse = sum == 0 ? 0.0f : 1 / sum;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        store2(&tiles.Q[row][swizzled(row, n * 8 + 2 * t)],
               pack<T>(o[rt][n][2 * r] * inverse, o[rt][n][2 * r + 1] * inverse));
      // LSE = log Σ exp(s). A row that saw no key: -inf + -inf = -inf.
      if (LSE && t == 0 && first_row + row < O.rows) LSE[first_row + row] = fmaf(m[rt][r] * c, 0.693147181f, logf(sum));
    }
  __syncwarp();  // the rows are complete: four lanes have written to each
  auto* out = reinterpret_cast<std::uint16_t*>(O.data);
  const bool in_pieces = in_pieces_of_8(O);
#pragma unroll
  for (int i = lane; i < 16 * kRowTiles * D / 8; i += 32) {
    const int row = warp_row + i / (D / 8), column = i % (D / 8) * 8;
    const std::uint16_t* piece = &tiles.Q[row][swizzled(row, column)];
    std::uint16_t* to = &out[(first_row + row) * O.stride + column];
    if (first_row + row >= O.rows) continue;
    if (in_pieces && column < O.cols) store8(to, load8(piece));
    for (int e = 0; !in_pieces && e < 8 && column + e < O.cols; ++e) to[e] = piece[e];
  }
}
// #endregion

// #region grid
// The grid. Without a mask x is the Q tile and y the head. With one x is the head and y the Q tile, the longest rows
// first: if blocks start in the order of their numbers, short ones fill the gaps in the end.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Layout<D>::threads(Br), Layout<D>::blocks)
    attention(Tensor<const T> Q /*[B, H, Sq, D]*/, Tensor<const T> K /*[B, H, Sk, D]*/,
              Tensor<const T> V /*[B, H, Sk, D]*/, Tensor<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, std::int64_t shift, int B, int H) {
  const bool heads_first = shift < K.rows;
  const unsigned head = heads_first ? blockIdx.x : blockIdx.z * gridDim.y + blockIdx.y;
  const unsigned q_tile = heads_first ? gridDim.y - 1 - blockIdx.y : blockIdx.x;
  const int b = head / H, h = head % H;
  if (b >= B) return;
  float* lse = LSE ? LSE + head * O.rows : nullptr;
  attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), lse, scale_log2, shift, q_tile);
}
// #endregion

// #region launch
// The host's side: the shared struct, the grid, the launch.
struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = attention<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const std::int64_t heads = std::int64_t{p.B} * p.H;
    dim3 grid = grid_of(p.Q.rows, Br, heads);
    if (p.shift < p.K.rows) grid = dim3(static_cast<unsigned>(heads), grid.x);
    kernel<<<grid, Layout<D>::threads(Br), shared_bytes, p.stream>>>(p.Q, p.K, p.V, p.O, p.LSE, p.scale_log2, p.shift,
                                                                     p.B, p.H);
  }
};
// #endregion

}  // namespace flash::phase13::inline FLASH_MACHINE
