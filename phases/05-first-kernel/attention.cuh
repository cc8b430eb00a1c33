// Phase 05: the first kernel. A block of Br threads owns a Q tile, a thread owns one row of it: its m, l and o.
// New since 04: CUDA C++. Tiles lie in shared memory, loops over rows have become threads, edges are ragged.
// Run it: ./flash tour 05     Test it: ./flash test 05     The same file runs on the simulator and on a GPU.
#pragma once
#include "phases/05-first-kernel/phase.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase05::inline FLASH_MACHINE {

// #region tiles
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
// #endregion

// #region load-tile
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
// #endregion

// #region head
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br)
    attention(Head<const T> Q /*[Sq, D]*/, Head<const T> K /*[Sk, D]*/, Head<const T> V /*[Sk, D]*/,
              Head<T> O /*[Sq, D]*/, float scale_log2 /*scale · log2 e*/) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();

  // Which rows are mine? The block's tile begins at first_row; the thread's row is `row` of it.
  const int row = threadIdx.x;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * Br;
  load_tile<D>(tiles.Q, Q, first_row);

  // The state of online softmax (phase 02), in registers.
  float m = -INFINITY, l = 0, o[D] = {};
  // #endregion

  // #region loop
  for (std::int64_t first_key = 0; first_key < K.rows; first_key += Bc) {
    trace_mark("tile", first_key / Bc);
    load_tile<D>(tiles.K, K, first_key);
    load_tile<D>(tiles.V, V, first_key);
    __syncthreads();  // the tiles are complete: each was filled by all threads

    // #endregion
    // #region scores
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
    // #endregion

    // #region mask
    // Scale, in base 2: exp(x) = exp2(x · log2 e), and the GPU has an instruction for exp2 only.
#pragma unroll
    for (int j = 0; j < Bc; ++j) s[j] *= scale_log2;

    // Keys beyond the end, in the last tile only: -inf, by selection, so that it does not matter what was there.
    const int keys = min(K.rows - first_key, std::int64_t{Bc});  // that the row sees
    if (keys < Bc) {
#pragma unroll
      for (int j = 0; j < Bc; ++j) s[j] = j < keys ? s[j] : -INFINITY;
    }
    // #endregion

    // #region online-softmax
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
      tiles.P[j][row] = widen(round_to<T>(p));  // P meets V in V's type, as on tensor cores; l sums the unrounded p
    }

    // The old state counts less now that the maximum has grown.
#pragma unroll
    for (int d = 0; d < D; ++d) o[d] *= alpha;
    l = fmaf(l, alpha, sum);
    m = m_new;
    trace_value("m", first_row + row, m), trace_value("l", first_row + row, l);
    trace_value("alpha", first_row + row, alpha);
    // #endregion

    // #region output
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
  T* o_row = O.data + (first_row + row) * O.stride;  // [D]
  const float divisor = l == 0 ? 1.0f : l;
#pragma unroll
  for (int d = 0; d < D; ++d)
    if (d < O.cols) o_row[d] = round_to<T>(o[d] / divisor);
  // #endregion
}

// #region launch
// The host's side: the shared struct, the grid, the launch. One launch per head, since the kernel handles only
// one. It has only ceil(Sq / Br) blocks, 8 for Sq = 512, where an H100 has room for hundreds: most of the chip idles.
// Phase 06 puts all heads into one grid.
struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = attention<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const unsigned blocks = static_cast<unsigned>((p.Q.rows + Br - 1) / Br);
    for (int b = 0; b < p.B; ++b)
      for (int h = 0; h < p.H; ++h)
        kernel<<<blocks, Br, shared_bytes, p.stream>>>(p.Q.head(b, h), p.K.head(b, h), p.V.head(b, h), p.O.head(b, h),
                                                       p.scale_log2);
  }
};
// #endregion

}  // namespace flash::phase05::inline FLASH_MACHINE
