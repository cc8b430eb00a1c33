// Phase 13: the products of phase 12 with fewer instructions around them. New: 32 rows per warp, scale inside exp2's
// multiply-add, O rescaled only when a maximum has grown by much, a loop for masked tiles and one for the others, and
// more. Run it: ./flash tour 13     Test it: ./flash test 13     Step by step: steps/
#pragma once
#include <type_traits>

#include "phases/12-async-copies/attention.cuh"
#include "phases/13-instruction-diet/phase.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase13::inline FLASH_MACHINE {

// #region layout
// What fits into 255 registers and two blocks per multiprocessor (D = 256: one).
template <int D>
struct Layout {
  static constexpr int row_tiles = D <= 128 ? 2 : 1;  // of 16 rows, per warp
  static constexpr bool keep_q = D <= 64;             // Q's fragments in registers
  static constexpr int blocks = D <= 128 ? 2 : 1;     // per multiprocessor
  static constexpr int threads(int Br) { return Br / (16 * row_tiles) * 32; }
};

// By how much (log2) a row's maximum may outgrow the one in use, once that comes from a whole tile. From few keys it is
// a poor guess.
constexpr float rescale_beyond(int Bc) {
  return Bc >= 64 ? 8 : 0;
}

// Shared memory of a block: elements of 16 bits, as bits. Element (row, column) of a tile is at [row][swizzled(…)].
constexpr int kStages = 2;
template <int D, int Br, int Bc>
struct Tiles {
  alignas(16) std::uint16_t Q[Br][D];  // in the end O's rows, on their way out
  alignas(16) std::uint16_t K[kStages][Bc][D];
  alignas(16) std::uint16_t V[kStages][Bc][D];
};
// #endregion

// #region load-tile
// As in phase 12: where an element of a tile lies, which keys and K/V tiles are seen.
using phase12::swizzled, phase12::tile_range, phase12::TileRange, phase12::visible;

// Begins to copy HBM -> shared memory, to be waited for: rows first … first + Rows - 1, zeros from row `end` and column
// from.cols on (0 · NaN is NaN). kWhole: the tile ends before `end`. A thread copies one column of pieces of 16 bytes;
// their rows are a power of two apart, so that the swizzle of each is an XOR of the first one's with a constant.
// Where base, stride or D are no multiples of 16 bytes: element by element, at once.
template <bool kWhole, int kThreads, int D, int Rows, class T>
__device__ void load_tile(std::uint16_t (&tile)[Rows][D], Head<const T> from, std::int64_t first, std::int64_t end) {
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from.data);
  if (in_pieces_of_8(from)) {
    constexpr int kRowsAtOnce = kThreads / (D / 8);
    static_assert(kThreads % (D / 8) == 0 && Rows % kRowsAtOnce == 0);
    const int r0 = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8) * 8, at = swizzled(r0, c);
    const int rows = c >= from.cols ? 0 : kWhole ? Rows : static_cast<int>(min(end - first, std::int64_t{Rows}));
    const std::uint16_t* piece = &bits[(first + r0) * from.stride + c];  // not read where it is outside
#pragma unroll
    for (int r = 0; r < Rows; r += kRowsAtOnce, piece += kRowsAtOnce * from.stride)
      cp_async_16(&tile[r0][0] + r * D + swizzled(r, at), piece, (kWhole ? rows > 0 : r0 + r < rows) ? 16 : 0);
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
// address, which four pointers know; 8 rows or 64 columns further on is a constant. The XOR is one of the distance from
// `shared`, which the compiler makes anew for each tile: registers are what is short here.
template <int D>
struct Fragments {
  const unsigned char* column[4];

  __device__ Fragments(const void* shared, const std::uint16_t* tile, int row, int first_column) {
    const auto* start = static_cast<const unsigned char*>(shared);
    const auto* first = reinterpret_cast<const unsigned char*>(&tile[row * D + swizzled(row, first_column)]);
#pragma unroll
    for (int i = 0; i < 4; ++i) column[i] = start + (static_cast<int>(first - start) ^ i * 32);
  }
  // `down`: a multiple of 8; `right`: a multiple of 16.
  __device__ const void* at(int down, int right) const {
    return column[right / 16 % 4] + (down * D + right / 64 * 64) * 2;
  }
};
// #endregion

// #region head
// What a block does with Q tile number q_tile of a head.
template <class T, int D, int Br, int Bc>
__device__ void attend(Head<const T> Q /*[Sq, D]*/, Head<const T> K /*[Sk, D]*/, Head<const T> V /*[Sk, D]*/,
                       Head<T> O /*[Sq, D]*/, float* LSE /*[Sq] or null*/, float scale_log2 /*scale · log2 e*/,
                       std::int64_t shift, std::int64_t q_tile) {
  constexpr int kRowTiles = Layout<D>::row_tiles, kRows = 16 * kRowTiles, kThreads = Layout<D>::threads(Br);
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();

  // Which rows are mine? Of each 16 rows of the warp two, 8 apart, are the lane's, with columns 2t, 2t + 1 of each 8.
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp_row = threadIdx.x / 32 * kRows;
  const std::int64_t first_row = q_tile * Br;

  // P = exp2(c · S - c · m). A negative scale turns the signs of Q; scale = 0 becomes tiny, since -inf · 0 is NaN.
  const float c = fmaxf(fabsf(scale_log2), 1e-30f);

  // The state of online softmax (phase 02), in registers: element i of o and s belongs to row i / 2. m is near the
  // maximum of what was seen; any value will do, as long as P, l and O use the same.
  float m[kRowTiles][2], l[kRowTiles][2] = {}, o[kRowTiles][D / 8][4] = {};
#pragma unroll
  for (int rt = 0; rt < kRowTiles; ++rt) m[rt][0] = m[rt][1] = -INFINITY;
  float slack = 0;        // what a maximum may grow by
  bool moderate = false;  // is 0 <= c · m <= 512 for all rows of the warp?
  // #endregion

  // #region first-copies
  // From the last tile to the first: only the first copies must look for the end of K and V.
  const TileRange range = tile_range<Br, Bc>(first_row, Q.rows, K.rows, shift);
  int tile = static_cast<int>(range.seen) - 1;
  const auto copy = [&](auto whole, int j) {
    load_tile<decltype(whole)::value, kThreads>(tiles.K[j % kStages], K, std::int64_t{j} * Bc, range.keys);
    load_tile<decltype(whole)::value, kThreads>(tiles.V[j % kStages], V, std::int64_t{j} * Bc, range.keys);
  };
  if (range.seen > 0) {
    load_tile<false, kThreads>(tiles.Q, Q, first_row, Q.rows);
    copy(std::false_type(), tile);
    cp_async_commit();
  }

  const Fragments<D> q_rows(&tiles, &tiles.Q[0][0], warp_row + lane % 16, lane / 16 * 8);
  unsigned q[Layout<D>::keep_q ? kRowTiles : 1][Layout<D>::keep_q ? D / 16 : 1][4];
  if (range.seen > 0) {
    cp_async_wait<0>();
    __syncthreads();  // Q is complete: all threads have copied some of it
    if (scale_log2 < 0) {
      for (int i = lane; i < kRows * D / 2; i += 32) {
        std::uint16_t* pair = &tiles.Q[warp_row][0] + 2 * i;
        store2(pair, load2(pair) ^ 0x80008000u);
      }
      __syncwarp();  // the rows are the warp's own; their signs are turned by all its lanes
    }
#pragma unroll
    for (int i = 0; i < kRows * D / 256; ++i)
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
    if (tile > 0) copy(std::true_type(), tile - 1);
    cp_async_commit();
    const int stage = tile % kStages;

    // Does any row of the warp see any key of the tile?
    if (kMasked && visible(first_row + warp_row + kRows - 1, shift, K.rows) <= first_key) return;
    // #endregion

    // #region scores
    // S = Q Kᵀ: 16 rows and 16 keys at a time.
    float s[kRowTiles][Bc / 8][4] = {};
    const Fragments<D> k_rows(&tiles, &tiles.K[stage][0][0], lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
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
    // #endregion

    // #region mask
    // -inf for keys beyond the row's diagonal or the end, by selection. `diagonal` is that of the warp's first row.
    if (kMasked) {
      const std::int64_t beyond = first_row + warp_row + 1 + shift - first_key, end = K.rows - first_key;
      const int diagonal = static_cast<int>(max(min(beyond, std::int64_t{Bc}), std::int64_t{-kRows}));
      const int last = static_cast<int>(min(end, std::int64_t{Bc}));
      if (min(diagonal, last) < Bc)
#pragma unroll
        for (int i = 0; i < 2 * kRowTiles * Bc / 8; ++i) {
          const int row = i / (Bc / 8), n = i % (Bc / 8);  // of the lane's
          const int keys = min(diagonal + row * 8 + g, last) - n * 8 - 2 * t;
          if (keys <= 0) s[row / 2][n][row % 2 * 2] = -INFINITY;
          if (keys <= 1) s[row / 2][n][row % 2 * 2 + 1] = -INFINITY;
        }
    }
    // #endregion

    // #region maximum
    // Has a maximum grown? Of the lane's own columns for now. Where all m are positive the bits of a float are ordered
    // as integers (a smaller one of either sign changes nothing), and there is a maximum of three integers.
    float top[kRowTiles][2];
    bool grown = false;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int rt = i / 2, r = i % 2;
      float& x = top[rt][r] = m[rt][r];
      if (moderate) {
        int bits = __float_as_int(x);
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n)
          bits = __vimax3_s32(bits, __float_as_int(s[rt][n][2 * r]), __float_as_int(s[rt][n][2 * r + 1]));
        x = __int_as_float(bits);
      } else {
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) x = fmaxf(x, fmaxf(s[rt][n][2 * r], s[rt][n][2 * r + 1]));
      }
      grown |= x > m[rt][r] + slack;
    }
    // #endregion

    // #region rescale
    // If by much: the maximum of all four lanes, and the old state counts less.
    if (__any_sync(0xffffffffu, grown)) {
      bool all = true;
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        const int rt = i / 2, r = i % 2;
        const float m_new = row_max(top[rt][r]), m_safe = m_new == -INFINITY ? 0.0f : m_new;
        const float alpha = ex2_approx_ftz((m[rt][r] - m_safe) * c);
        m[rt][r] = m_new;
        const std::int64_t row = first_row + warp_row + i * 8 + g;
        trace_value("m", row, m_new), trace_value("alpha", row, alpha);
        all &= m_new >= 0 && m_new * c <= 512;
        l[rt][r] *= alpha;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) o[rt][n][2 * r] *= alpha, o[rt][n][2 * r + 1] *= alpha;
      }
      moderate = __all_sync(0xffffffffu, all);
      if (!kMasked) slack = rescale_beyond(Bc) / c;
    }
    // #endregion

    // #region probabilities
    // P = exp2(c · s - base). Where c · m is large its rounding would show in P, and where no key was seen -inf - -inf
    // is NaN: there m is subtracted first.
    float base[kRowTiles][2];
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) base[i / 2][i % 2] = moderate ? m[i / 2][i % 2] * c : 0.0f;
    if (!moderate)
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        const float m_safe = m[i / 2][i % 2] == -INFINITY ? 0.0f : m[i / 2][i % 2];
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) s[i / 2][n][i % 2 * 2] -= m_safe, s[i / 2][n][i % 2 * 2 + 1] -= m_safe;
      }
    // #endregion

    // #region output-product
    // O += P V: 16 keys and 16 columns at a time. P is rounded to T as tensor cores take it; l sums the unrounded, of
    // this lane's columns for now. The exps of 16 keys stand beside the products of the 16 before.
    const Fragments<D> v_rows(&tiles, &tiles.V[stage][0][0], lane % 16, lane / 16 * 8);
#pragma unroll
    for (int k = 0; k < Bc; k += 16) {
      unsigned p[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) {
        const int rt = i / 4, n = k / 8 + i % 4 / 2, r = i % 2;
        const float left = ex2_approx_ftz(fmaf(s[rt][n][2 * r], c, -base[rt][r]));
        const float right = ex2_approx_ftz(fmaf(s[rt][n][2 * r + 1], c, -base[rt][r]));
        l[rt][r] += left + right;
        p[rt][i % 4] = pack<T>(left, right);
      }
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned v[4];
        ldmatrix_x4_trans(v, v_rows.at(k, n * 8));
#pragma unroll
        for (int rt = 0; rt < kRowTiles; ++rt) {
          mma_m16n8k16<T>(o[rt][n], p[rt], {v[0], v[1]}, o[rt][n]);
          mma_m16n8k16<T>(o[rt][n + 1], p[rt], {v[2], v[3]}, o[rt][n + 1]);
        }
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

  // One division at the end; a row that saw no key has l = 0 and stays 0. Of the four lanes that share their rows each
  // divides for one. O goes out through the warp's rows of Q, which nobody else reads.
  float row_m = 0, row_l = 0;
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const float sum = row_sum(l[i / 2][i % 2]);
    if (t == i) row_m = m[i / 2][i % 2], row_l = sum;
    trace_value("l", first_row + warp_row + i * 8 + g, sum);
  }
  const float inverse = row_l == 0 ? 0.0f : 1 / row_l;
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const float factor = __shfl_sync(0xffffffffu, inverse, lane - t + i);
    const int row = warp_row + i * 8 + g;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const float *pair = &o[i / 2][n][i % 2 * 2], left = pair[0] * factor, right = pair[1] * factor;
      store2(&tiles.Q[row][swizzled(row, n * 8 + 2 * t)], pack<T>(left, right));
    }
  }
  __syncwarp();  // the rows are complete: four lanes have written to each

  // LSE = log Σ exp(s). A row that saw no key: -inf + -inf = -inf.
  const std::int64_t lse_row = first_row + warp_row + t * 8 + g;
  if (LSE && t < 2 * kRowTiles && lse_row < O.rows) LSE[lse_row] = fmaf(row_m * c, 0.693147181f, logf(row_l));

  // Neighbouring lanes store 16 bytes each of one row.
  constexpr int kRowsAtOnce = 32 / (D / 8);
  const int r0 = warp_row + lane / (D / 8), column = lane % (D / 8) * 8, at = swizzled(r0, column);
  const int rows = column >= O.cols ? 0 : static_cast<int>(min(O.rows - first_row - r0, std::int64_t{kRows}));
  const std::uint16_t* piece = &tiles.Q[r0][0];
  std::uint16_t* to = reinterpret_cast<std::uint16_t*>(O.data) + (first_row + r0) * O.stride + column;
  if (in_pieces_of_8(O)) {
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce, to += kRowsAtOnce * O.stride)
      if (r < rows) store8(to, load8(&piece[r * D + swizzled(r, at)]));
  } else {
#pragma unroll 1
    for (int r = 0; r < rows; r += kRowsAtOnce, to += kRowsAtOnce * O.stride)
      for (int e = 0; e < 8 && column + e < O.cols; ++e) to[e] = piece[r * D + swizzled(r, at) + e];
  }
}
// #endregion

// #region grid
// The grid. Without a mask x is the Q tile and y the head. With one x counts heads first, then Q tiles, the longest
// first: if blocks start in the order of their numbers, short ones fill the gaps in the end.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Layout<D>::threads(Br), Layout<D>::blocks)
    attention(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, H, Sk, D]*/,
              Heads<const T> V /*[B, H, Sk, D]*/, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, std::int64_t shift, int B, int H) {
  const bool heads_first = shift < K.rows;
  const unsigned heads = B * H;
  const unsigned head = heads_first ? blockIdx.x % heads : blockIdx.z * gridDim.y + blockIdx.y;
  const unsigned q_tile = heads_first ? (gridDim.x - 1 - blockIdx.x) / heads : blockIdx.x;
  if (head >= heads) return;
  const int b = head / H, h = head % H;
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
    if (p.shift < p.K.rows) grid = dim3(static_cast<unsigned>(grid.x * heads));
    kernel<<<grid, Layout<D>::threads(Br), shared_bytes, p.stream>>>(p.Q, p.K, p.V, p.O, p.LSE, p.scale_log2, p.shift,
                                                                     p.B, p.H);
  }
};
// #endregion

}  // namespace flash::phase13::inline FLASH_MACHINE
