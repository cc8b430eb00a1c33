// 5-order.cuh: where a mask hides keys, Q tiles take different times, and the longest of all heads come first.
// New since 5-rows.cuh: the grid counts heads first, then Q tiles from the last one.
// Run it: build/default/bin/phase13_steps; the next step: 6-rescale.cuh
#pragma once
#include <type_traits>

#include "phases/10-tensor-cores/keys.cuh"
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/13-instruction-diet/copies.cuh"
#include "phases/13-instruction-diet/fragments.cuh"
#include "phases/13-instruction-diet/output.cuh"
#include "phases/13-instruction-diet/phase.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase13::inline FLASH_MACHINE::longest_first {

// What fits into 255 registers and two blocks per multiprocessor (D = 256: one).
template <int D>
struct Layout {
  static constexpr int row_tiles = D <= 128 ? 2 : 1;  // of 16 rows, per warp
  static constexpr bool keep_q = D <= 64;             // Q's fragments in registers
  static constexpr int blocks = D <= 128 ? 2 : 1;     // per multiprocessor
  static constexpr int threads(int Br) { return Br / (16 * row_tiles) * 32; }
};

// Shared memory of a block: elements of 16 bits, as bits. Element (row, column) of a tile is at [row][swizzled(…)].
template <int D, int Br, int Bc>
struct Tiles {
  alignas(16) std::uint16_t Q[Br][D];
  alignas(16) std::uint16_t K[2][Bc][D];  // tile j is in stage j % 2
  alignas(16) std::uint16_t V[2][Bc][D];
};

// What a lane holds of its warp's row tiles of 16 rows, and what the warp does with a K/V tile. Two rows of each are
// the lane's, 8 apart. There are one or two. S and O are products, in registers as rows.cuh says.
template <class T, int D, int Br, int Bc>
struct Warp {
  static constexpr int kRowTiles = Layout<D>::row_tiles, kRows = 16 * kRowTiles;
  static constexpr bool kKeepQ = Layout<D>::keep_q;

  Tiles<D, Br, Bc>& tiles;
  const std::int64_t first_row;   // of the Q tile
  const Band<std::int64_t> band;  // which keys its rows see
  const float c;                  // P = exp2(c · S - c · m), c > 0
  unsigned q[kRowTiles][kKeepQ ? D / 16 : 1][4] = {};

  float m[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
  float l[kRowTiles][2] = {}, o[kRowTiles][D / 2] = {};  // the state of online softmax (phase 02)

  // The warp's first row in the Q tile. A function: as a member, beside arrays, it would cost registers (phase 13).
  static __device__ int warp_row() { return threadIdx.x / 32 * kRows; }
  __device__ Fragments<D> q_rows() const { return {&tiles, tiles.Q, warp_row() + a_row(), a_column()}; }

  // Once Q is there. A negative scale turns its signs, since c > 0.
  __device__ void begin(bool negative) {
    if (negative) {
      for (int i = threadIdx.x % 32; i < kRows * D / 2; i += 32) {
        std::uint16_t* pair = &tiles.Q[warp_row()][0] + 2 * i;
        store2(pair, load2(pair) ^ 0x80008000u);
      }
      __syncwarp();  // the rows are the warp's own; their signs are turned by all its lanes
    }
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
      for (int d = 0; d < D; d += 16)
        if (kKeepQ) ldmatrix_x4(q[rt][d / 16 % std::size(q[0])], q_rows().at(rt * 16, d));
  }

  // S = Q Kᵀ: 16 keys at a time.
  __device__ void scores(float (&s)[kRowTiles][Bc / 2], const std::uint16_t (&K)[Bc][D]) {
    const Fragments<D> k_rows(&tiles, K, b_row(), b_column());
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      const int i = d / 16 % std::size(q[0]);
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt)
        if (!kKeepQ) ldmatrix_x4(q[rt][i], q_rows().at(rt * 16, d));
#pragma unroll
      for (int n = 0; n < Bc / 8; n += 2) {
        unsigned k[4];
        ldmatrix_x4(k, k_rows.at(n * 8, d));
#pragma unroll
        for (int rt = 0; rt < kRowTiles; ++rt) {
          mma_m16n8k16<T>(c_fragment(s[rt], n), q[rt][i], {k[0], k[1]}, c_fragment(s[rt], n));
          mma_m16n8k16<T>(c_fragment(s[rt], n + 1), q[rt][i], {k[2], k[3]}, c_fragment(s[rt], n + 1));
        }
      }
    }
  }

  // Does any row of the warp see a key from first_key on?
  __device__ bool sees(std::int64_t first_key) const {
    return band.end(first_row + warp_row() + kRows - 1) > first_key;
  }

  // -inf for keys beyond the row's diagonal or the end, by selection. `diagonal` is that of the warp's first row; both
  // are counted from first_key, and bounded where more would change nothing, so that int holds them.
  __device__ void mask(float (&s)[kRowTiles][Bc / 2], std::int64_t first_key) const {
    const std::int64_t beyond = first_row + warp_row() + 1 + band.right - first_key;
    const int diagonal = static_cast<int>(max(min(beyond, std::int64_t{Bc}), std::int64_t{-kRows}));
    const int end = static_cast<int>(min(band.Sk - first_key, std::int64_t{Bc}));
    if (min(diagonal, end) == Bc) return;
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) {
      const int first = diagonal + rt * 16 + lane_row();
      hide(s[rt], {min(first, end) - lane_column(), min(first + 8, end) - lane_column()});
    }
  }

  // m becomes the rows' maximum so far, and the old state counts less. While no key was seen m is -inf, and -inf - -inf
  // would be NaN: 0 is subtracted then.
  __device__ void follow(int rt, const float (&s)[Bc / 2]) {
    float top[2] = {m[rt][0], m[rt][1]}, alpha[2];
    grow(top, s);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float m_new = row_max(top[r]), m_safe = m_new == -INFINITY ? 0.0f : m_new;
      alpha[r] = ex2_approx_ftz((m[rt][r] - m_safe) * c);
      m[rt][r] = m_new;
      l[rt][r] *= alpha[r];
      const std::int64_t row = first_row + warp_row() + 16 * rt + 8 * r + lane_row();
      trace_value("m", row, m_new), trace_value("alpha", row, alpha[r]);
    }
    rescale(o[rt], alpha);
  }

  // P = exp2(c · S - c · m), rounded to T as tensor cores take it; l sums the unrounded, of this lane's columns.
  __device__ void probabilities(int rt, unsigned (&p)[Bc / 16][4], float (&s)[Bc / 2]) {
    float base[2];
    for (int r = 0; r < 2; ++r) base[r] = m[rt][r] == -INFINITY ? 0.0f : m[rt][r] * c;
#pragma unroll
    for (int i = 0; i < Bc / 2; i += 2) {
      const int r = row_of(i);
      s[i] = ex2_approx_ftz(fmaf(s[i], c, -base[r])), s[i + 1] = ex2_approx_ftz(fmaf(s[i + 1], c, -base[r]));
      l[rt][r] += s[i] + s[i + 1];
    }
    round_p<T>(p, s);
  }

  // O += P V: 16 keys at a time, 16 columns at a time.
  __device__ void add_output(const unsigned (&p)[kRowTiles][Bc / 16][4], const std::uint16_t (&V)[Bc][D]) {
    const Fragments<D> v_rows(&tiles, V, a_row(), a_column());
#pragma unroll
    for (int k = 0; k < Bc; k += 16)
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned v[4];
        ldmatrix_x4_trans(v, v_rows.at(k, n * 8));
#pragma unroll
        for (int rt = 0; rt < kRowTiles; ++rt) {
          mma_m16n8k16<T>(c_fragment(o[rt], n), p[rt][k / 16], {v[0], v[1]}, c_fragment(o[rt], n));
          mma_m16n8k16<T>(c_fragment(o[rt], n + 1), p[rt][k / 16], {v[2], v[3]}, c_fragment(o[rt], n + 1));
        }
      }
  }

  // A K/V tile. kMasked: some row may not see all of it.
  template <bool kMasked>
  __device__ void multiply(int tile) {
    float s[kRowTiles][Bc / 2] = {};
    unsigned p[kRowTiles][Bc / 16][4];
    scores(s, tiles.K[tile % 2]);
    if (kMasked) mask(s, std::int64_t{tile} * Bc);
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) {
      follow(rt, s[rt]);
      probabilities(rt, p[rt], s[rt]);
    }
    add_output(p, tiles.V[tile % 2]);
  }

  // One division at the end; a row that saw no key has l = 0 and stays 0. Of the four lanes that share their rows each
  // divides for one. O goes into the warp's rows of Q, which nobody else reads.
  __device__ void finish(float* LSE /*[Sq] or null*/, std::int64_t Sq) {
    __syncwarp();  // all lanes have read their last rows of Q, which O overwrites
    const int t = threadIdx.x % 4, row = warp_row() + lane_row();
    float row_m = 0, row_l = 0;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const float sum = row_sum(l[i / 2][i % 2]);
      if (t == i) row_m = m[i / 2][i % 2], row_l = sum;
      trace_value("l", first_row + row + 8 * i, sum);
    }
    const float inverse = row_l == 0 ? 0.0f : 1 / row_l;
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) {
      float factor[2];
      for (int r = 0; r < 2; ++r) factor[r] = __shfl_sync(0xffffffffu, inverse, threadIdx.x % 32 - t + 2 * rt + r);
      rescale(o[rt], factor);
#pragma unroll
      for (int i = 0; i < D / 2; i += 2) {
        const int to = row + 16 * rt + 8 * row_of(i);
        store2(&tiles.Q[to][swizzled(to, column_of(i) + lane_column())], pack<T>(o[rt][i], o[rt][i + 1]));
      }
    }
    const std::int64_t mine = first_row + row + t * 8;
    if (LSE && t < 2 * kRowTiles && mine < Sq) LSE[mine] = log_sum(row_m * c, row_l);
  }
};

// What a block does with Q tile number q_tile of a head.
template <class T, int D, int Br, int Bc>
__device__ void attend(Head<const T> Q /*[Sq, D]*/, Head<const T> K /*[Sk, D]*/, Head<const T> V /*[Sk, D]*/,
                       Head<T> O /*[Sq, D]*/, float* LSE /*[Sq] or null*/, float scale_log2 /*scale · log2 e*/,
                       Band<std::int64_t> band, std::int64_t q_tile) {
  constexpr int kThreads = Layout<D>::threads(Br);
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const std::int64_t first_row = q_tile * Br;
  const float c = fmaxf(fabsf(scale_log2), 1e-30f);  // a scale of 0 becomes tiny, since -inf · 0 is NaN
  Warp<T, D, Br, Bc> warp{tiles, first_row, band, c};
  const KeyTiles range = key_tiles<Br, Bc>(first_row, band);

  const auto begin_copies = [&](auto whole, int tile) {
    load_tile<decltype(whole)::value, kThreads>(tiles.K[tile % 2], K, std::int64_t{tile} * Bc, range.keys);
    load_tile<decltype(whole)::value, kThreads>(tiles.V[tile % 2], V, std::int64_t{tile} * Bc, range.keys);
    cp_async_commit();
  };
  const auto wait_for = [&](int tile) {
    cp_async_wait<0>();
    __syncthreads();  // all threads' copies are there; and all have read the other stage, which the next ones fill
    if (tile > 0) begin_copies(std::true_type(), tile - 1);
  };
  int tile = static_cast<int>(range.seen) - 1;  // from the last to the first: only the first copies look for the end
  if (range.seen > 0) {
    load_tile<false, kThreads>(tiles.Q, Q, first_row, Q.rows);
    begin_copies(std::false_type(), tile);
    cp_async_wait<0>();
    __syncthreads();  // Q is complete: all threads have copied some of it
    warp.begin(scale_log2 < 0);
  }

#pragma unroll 1
  for (; tile >= range.full; --tile) {
    trace_mark("masked", tile);
    wait_for(tile);
    if (warp.sees(std::int64_t{tile} * Bc)) warp.template multiply<true>(tile);
  }
#pragma unroll 1
  for (; tile >= 0; --tile) {
    trace_mark("full", tile);
    wait_for(tile);
    warp.template multiply<false>(tile);
  }
  warp.finish(LSE, O.rows);
  store_rows<decltype(warp)::kRows>(tiles.Q, warp.warp_row(), O, first_row);
}

// The grid. Without a mask x is the Q tile and y the head. With one x counts heads first, then Q tiles, the longest
// first: if blocks start in the order of their numbers, short ones fill the gaps in the end.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Layout<D>::threads(Br), Layout<D>::blocks)
    attention(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, H, Sk, D]*/,
              Heads<const T> V /*[B, H, Sk, D]*/, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, Band<std::int64_t> band, int B, int H) {
  const bool heads_first = band.cuts_right();
  const unsigned heads = B * H;
  const unsigned head = heads_first ? blockIdx.x % heads : blockIdx.z * gridDim.y + blockIdx.y;
  const unsigned q_tile = heads_first ? (gridDim.x - 1 - blockIdx.x) / heads : blockIdx.x;
  if (head >= heads) return;
  const int b = head / H, h = head % H;
  float* lse = LSE ? LSE + head * O.rows : nullptr;
  attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), lse, scale_log2, band, q_tile);
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
    const std::int64_t heads = std::int64_t{p.B} * p.H;
    dim3 grid = grid_of(p.Q.rows, Br, heads);
    if (p.band.cuts_right()) grid = dim3(static_cast<unsigned>(grid.x * heads));
    kernel<<<grid, Layout<D>::threads(Br), shared_bytes, p.stream>>>(p.Q, p.K, p.V, p.O, p.LSE, p.scale_log2, p.band,
                                                                     p.B, p.H);
  }
};

}  // namespace flash::phase13::inline FLASH_MACHINE::longest_first
