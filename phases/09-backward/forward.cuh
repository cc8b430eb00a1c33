// Phase 09's forward pass for training: O, LSE, and what the backward pass needs for the same P and δ: m, l, and O_lo,
// the bits of O that rounding cuts off. New since 08: these stores, and P stays in fp32 for P·V (docs/backward.md).
// Run it: ./flash tour 09     Test it: ./flash test 09
#pragma once
#include "phases/09-backward/phase.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase09::inline FLASH_MACHINE {

// Shared memory of a block, fp32: 32 banks of 4 bytes. The lanes of a warp read the same element of K or V at the same
// time: one broadcast. But each lane reads a row of Q of its own. Rows of D = 32, 64, … floats would all begin in the
// same bank and queue up; 4 spare columns shift each row by 4 banks, so that 8 lanes' float4 fill the 32 banks exactly.
template <int D, int Br, int Bc>
struct Tiles {
  alignas(16) float Q[Br][D + 4];
  alignas(16) float K[Bc][D];
  alignas(16) float V[Bc][D];
  float P[Bc][Br];  // column t is thread t's own: no barrier. An array indexed by a loop counter cannot be in registers
};

// What rounding took from a number, as 16 bits: the distance between the two bit patterns. For bf16 that is the lower
// half of the fp32 number, which restores it; for fp16 14 bits are enough while it is normal. The sign is the same.
__device__ __forceinline__ std::int16_t low_bits(float exact, float rounded) {
  const std::int64_t distance = std::int64_t{__float_as_int(exact)} - __float_as_int(rounded);  // NaN: may be wide
  return static_cast<std::int16_t>(min(max(distance, std::int64_t{-32768}), std::int64_t{32767}));
}
__device__ __forceinline__ float restore(float rounded, std::int16_t low) {
  return __int_as_float(static_cast<int>(std::int64_t{__float_as_int(rounded)} + low));
}

// K/V tiles 0 … full - 1 are seen whole by each row of a Q tile, full … seen - 1 in part, the others by no row. Counted
// in keys and then in tiles, so that Br and Bc need not divide each other: Bc > Br is fine.
struct TileRange {
  std::int64_t full, seen;
};
template <int Br, int Bc>
__device__ TileRange tile_range(std::int64_t first_row, const Band<std::int64_t>& band) {
  const std::int64_t last_row = min(first_row + Br, band.Sq) - 1;
  return {band.end(first_row) / Bc, (band.end(last_row) + Bc - 1) / Bc};
}

// HBM -> shared memory: rows first … first + Rows - 1; zeros beyond the matrix's edges. Neighbouring threads take
// neighbouring columns, so that a warp's load touches few 32-byte sectors.
template <int D, int Rows, int Pitch, class T>
__device__ void load_tile(float (&tile)[Rows][Pitch], Head<const T> from, std::int64_t first) {
  for (int i = threadIdx.x; i < Rows * D; i += blockDim.x) {
    const int r = i / D, c = i % D;
    const bool inside = first + r < from.rows && c < from.cols;
    tile[r][c] = inside ? widen(from.data[(first + r) * from.stride + c]) : 0.0f;
  }
}

// What is written of each row beside O; each may be null. LSE is for the caller; m and l are for the backward pass:
// LSE = ln 2 · m + ln l in fp32 is off by up to 2^-24 of its size, which becomes a factor of P: 6 % at logits of 1e6.
struct RowArrays {
  float *LSE, *m, *l;  // [B, H, Sq]; m in base 2
};

// What a block does with Q tile number q_tile of a head.
template <class T, int D, int Br, int Bc>
__device__ void attend(Head<const T> Q /*[Sq, D]*/, Head<const T> K /*[Sk, D]*/, Head<const T> V /*[Sk, D]*/,
                       Head<T> O /*[Sq, D]*/, Head<std::int16_t> O_lo /*[Sq, D] or null*/, RowArrays out,
                       std::int64_t first_out /*the head's first row in it*/, float scale_log2 /*scale · log2 e*/,
                       Band<std::int64_t> band, std::int64_t q_tile) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();

  // Which rows are mine? The block's tile begins at first_row; the thread's row is `row` of it.
  const int row = threadIdx.x;
  const std::int64_t first_row = q_tile * Br;
  load_tile<D>(tiles.Q, Q, first_row);

  // The state of online softmax (phase 02), in registers.
  float m = -INFINITY, l = 0, o[D] = {};

  const TileRange range = tile_range<Br, Bc>(first_row, band);
  for (std::int64_t tile = 0; tile < range.seen; ++tile) {
    const std::int64_t first_key = tile * Bc;
    trace_mark(tile < range.full ? "full" : "masked", tile);
    load_tile<D>(tiles.K, K, first_key);
    load_tile<D>(tiles.V, V, first_key);
    __syncthreads();  // the tiles are complete: each was filled by all threads

    // s[j] = Q_row · K_j, four columns at a time, so that one read of Q serves all keys.
    float s[Bc] = {};
#pragma unroll 1
    for (int d = 0; d < D; d += 4) {
      const float4 q = load4(&tiles.Q[row][d]);
#pragma unroll
      for (int j = 0; j < Bc; ++j) {
        const float4 k = load4(&tiles.K[j][d]);
        s[j] = fmaf(q.x, k.x, s[j]);
        s[j] = fmaf(q.y, k.y, s[j]);
        s[j] = fmaf(q.z, k.z, s[j]);
        s[j] = fmaf(q.w, k.w, s[j]);
      }
    }

    // Scale, in base 2: exp(x) = exp2(x · log2 e), and the GPU has an instruction for exp2 only. The product is rounded
    // and m subtracted after that: the backward pass does the same (p_again).
#pragma unroll
    for (int j = 0; j < Bc; ++j) s[j] *= scale_log2;

    // Keys beyond the row's diagonal or the end, in masked tiles only: -inf, by selection, so that it does not matter
    // what was there.
    const std::int64_t left = band.end(first_row + row) - first_key;
    const int keys = max(std::int64_t{0}, min(left, std::int64_t{Bc}));  // that the row sees
    if (tile >= range.full) {
#pragma unroll
      for (int j = 0; j < Bc; ++j) s[j] = j < keys ? s[j] : -INFINITY;
    }

    // The row's maximum so far.
    float m_new = m;
#pragma unroll
    for (int j = 0; j < Bc; ++j) m_new = fmaxf(m_new, s[j]);

    // P = exp(S - m). While no key was seen m is -inf, and -inf - -inf would be NaN: subtract 0 then.
    const float m_safe = m_new == -INFINITY ? 0.0f : m_new;
    const float alpha = exp2f(m - m_safe);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < Bc; ++j) {
      const float p = exp2f(s[j] - m_safe);
      sum += p;
      tiles.P[j][row] = p;  // not rounded to T: P V and l must use the same weights, or the row's δ would be off
    }

    // The old state counts less now that the maximum has grown.
#pragma unroll
    for (int d = 0; d < D; ++d) o[d] *= alpha;
    l = fmaf(l, alpha, sum);
    m = m_new;
    trace_value("m", first_row + row, m), trace_value("l", first_row + row, l);
    trace_value("alpha", first_row + row, alpha);

    // O += P V over the keys that the row sees. The others are not multiplied by 0: 0 · NaN would be NaN.
#pragma unroll 1
    for (int j = 0; j < keys; ++j) {
      const float p = tiles.P[j][row];
#pragma unroll
      for (int d = 0; d < D; d += 4) {
        const float4 v = load4(&tiles.V[j][d]);
        o[d] = fmaf(p, v.x, o[d]);
        o[d + 1] = fmaf(p, v.y, o[d + 1]);
        o[d + 2] = fmaf(p, v.z, o[d + 2]);
        o[d + 3] = fmaf(p, v.w, o[d + 3]);
      }
    }
    __syncthreads();  // all threads have read K and V: the next round may overwrite them
  }

  // One division at the end. A row that saw no key has l = 0 and stays 0. Rows beyond Sq are not stored.
  if (first_row + row >= O.rows) return;
  T* o_row = O.data + (first_row + row) * O.stride;                                          // [D]
  std::int16_t* lo_row = O_lo.data ? O_lo.data + (first_row + row) * O_lo.stride : nullptr;  // [D]
  const float divisor = l == 0 ? 1.0f : l;
#pragma unroll
  for (int d = 0; d < D; ++d)
    if (d < O.cols) {
      const float exact = o[d] / divisor;
      o_row[d] = round_to<T>(exact);
      if (lo_row) lo_row[d] = low_bits(exact, widen(round_to<T>(exact)));
    }

  // LSE = log Σ exp(s). m is in base 2: log Σ = ln 2 · m + ln l. A row that saw no key: -inf + -inf = -inf.
  const std::int64_t n = first_out + first_row + row;
  if (out.LSE) out.LSE[n] = fmaf(m, 0.693147181f, logf(l));
  if (out.m) out.m[n] = m;
  if (out.l) out.l[n] = l;
}

// The grid: x is the Q tile, y the head. y is 65,535 at most; further heads continue in z.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br)
    attention(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, H, Sk, D]*/,
              Heads<const T> V /*[B, H, Sk, D]*/, Heads<T> O /*[B, H, Sq, D]*/,
              Heads<std::int16_t> O_lo /*[B, H, Sq, D] or null*/, RowArrays out /*[B, H, Sq]*/, float scale_log2,
              Band<std::int64_t> band, int B, int H) {
  const unsigned head = blockIdx.z * gridDim.y + blockIdx.y;
  const int b = head / H, h = head % H;
  if (b >= B) return;
  const Head<std::int16_t> lo = O_lo.data ? O_lo.head(b, h) : Head<std::int16_t>{};
  attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), lo, out, head * O.rows, scale_log2, band,
                       blockIdx.x);
}

// The host's side: the shared struct, the grid, the launch.
struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = attention<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const dim3 grid = grid_of(p.Q.rows, Br, std::int64_t{p.B} * p.H);
    const RowArrays out{.LSE = p.LSE, .m = p.m, .l = p.l};
    kernel<<<grid, Br, shared_bytes, p.stream>>>(p.Q, p.K, p.V, p.O, p.O_lo, out, p.scale_log2, p.band, p.B, p.H);
  }
};

}  // namespace flash::phase09::inline FLASH_MACHINE
