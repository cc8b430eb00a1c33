// Phase 13: the products of phase 12 with fewer instructions around them. New: 32 rows per warp, scale inside exp2's
// multiply-add, O rescaled only when a maximum has grown by much, a loop for masked tiles and one for the others, and
// more. Run it: ./flash tour 13     Test it: ./flash test 13     Step by step: steps/
#pragma once
#include <type_traits>

#include "phases/10-tensor-cores/keys.cuh"
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/13-instruction-diet/copies.cuh"     // load_tile
#include "phases/13-instruction-diet/fragments.cuh"  // Fragments
#include "phases/13-instruction-diet/maximum.cuh"    // grow_positive
#include "phases/13-instruction-diet/output.cuh"     // store_output
#include "phases/13-instruction-diet/phase.hpp"
#include "phases/13-instruction-diet/training.cuh"  // Outputs, sum_of
#include "phases/interface/kernel_phase.cuh"
#include "phases/interface/variant.cuh"

namespace flash::phase13::inline FLASH_MACHINE {

// #region layout: what fits
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
template <int D, int Br, int Bc>
struct Tiles {
  alignas(16) std::uint16_t Q[Br][D];     // in the end O's rows, on their way out
  alignas(16) std::uint16_t K[2][Bc][D];  // tile j is in stage j % 2
  alignas(16) std::uint16_t V[2][Bc][D];
};
// #endregion

// #region warp: what a lane holds
// What a lane holds of its warp's row tiles of 16 rows, and what the warp does with a K/V tile. Two rows of each are
// the lane's, 8 apart. There are one or two. S and O are products, in registers as rows.cuh says.
template <class T, int D, int Br, int Bc, bool kKeeps, class Variant>
struct Warp {
  static constexpr int kRowTiles = Layout<D>::row_tiles, kRows = 16 * kRowTiles;
  static constexpr bool kKeepQ = Layout<D>::keep_q && !kKeeps;

  Tiles<D, Br, Bc>& tiles;
  const std::int64_t first_row;  // of the Q tile
  Variant band;                  // which keys its rows see
  const float c;                 // P = exp2(c · S - c · m), c > 0
  const int head, H;
  unsigned q[kRowTiles][kKeepQ ? D / 16 : 1][4] = {};

  // The state of online softmax (phase 02). m is near the maximum of what was seen; any value will do, as long as P, l
  // and O use the same.
  float m[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
  float l[kRowTiles][2] = {}, o[kRowTiles][D / 2] = {};
  float rounded_l[kRowTiles][2] = {};             // kKeeps: the sum of P as it was rounded
  unsigned kept[kRowTiles][(Bc + 63) / 64] = {};  // with dropout (phase 29): which numbers of P are
  float slack = 0;                                // what a maximum may grow by before m follows it
  bool moderate = false;                          // is 0 <= c · m <= 512 for all rows of the warp?

  // The warp's first row in the Q tile. A function: as a member, beside arrays, it would cost registers (phase 13).
  static __device__ int warp_row() { return threadIdx.x / 32 * kRows; }
  __device__ Fragments<D> q_rows() const { return {&tiles, tiles.Q, warp_row() + a_row(), a_column()}; }
  // #endregion

  // #region scores: Q, once, and S = Q Kᵀ
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
  // #endregion

  // #region mask: -inf beyond the diagonal and the end
  // Does any row of the warp see a key of the tile from first_key on?
  __device__ bool sees(std::int64_t first_key) const {
    if (Variant::windows && band.begin(first_row + warp_row()) >= first_key + Bc) return false;
    return band.end(first_row + warp_row() + kRows - 1) > first_key;
  }

  // -inf for keys beyond the row's diagonal or the end, by selection. `diagonal` is that of the warp's first row; both
  // are counted from first_key, and bounded where more would change nothing, so that int holds them.
  __device__ void mask(float (&s)[kRowTiles][Bc / 2], std::int64_t first_key) const {
    if constexpr (Variant::windows) hide_left(s, band, first_row + warp_row() + lane_row(), first_key);
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
  // #endregion

  // #region maximum: has one outgrown its m? Then m follows, and the old state counts less
  // Has a maximum outgrown its m? top: those of the lane's own columns for now.
  __device__ bool outgrown(int rt, float (&top)[2], const float (&s)[Bc / 2]) const {
    top[0] = m[rt][0], top[1] = m[rt][1];
    if (moderate)
      grow_positive(top, s);
    else
      grow(top, s);
    return top[0] > m[rt][0] + slack || top[1] > m[rt][1] + slack;
  }

  // m becomes the maximum of all four lanes, and the old state counts less. While no key was seen m is -inf, and
  // -inf - -inf would be NaN: 0 is subtracted then. Returns whether the lane's two rows are moderate.
  __device__ bool follow(int rt, const float (&top)[2]) {
    float alpha[2];
    bool all = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float m_new = row_max(top[r]), m_safe = m_new == -INFINITY ? 0.0f : m_new;
      alpha[r] = ex2_approx_ftz((m[rt][r] - m_safe) * c);
      m[rt][r] = m_new;
      l[rt][r] *= alpha[r];
      if (kKeeps) rounded_l[rt][r] *= alpha[r];
      all &= m_new >= 0 && m_new * c <= 512;
      const std::int64_t row = first_row + warp_row() + 16 * rt + 8 * r + lane_row();
      trace_value("m", row, m_new), trace_value("alpha", row, alpha[r]);
    }
    rescale(o[rt], alpha);
    return all;
  }
  // #endregion

  // #region probabilities: large logits first
  // P = exp2(c · S - base). Where c · m is large its rounding would show in P, and where no key was seen -inf - -inf is
  // NaN: there m is subtracted first.
  __device__ void subtract(int rt, float (&base)[2], float (&s)[Bc / 2]) const {
    base[0] = moderate ? m[rt][0] * c : 0.0f, base[1] = moderate ? m[rt][1] * c : 0.0f;
    if (moderate) return;
    const float m_safe[2] = {m[rt][0] == -INFINITY ? 0.0f : m[rt][0], m[rt][1] == -INFINITY ? 0.0f : m[rt][1]};
#pragma unroll
    for (int i = 0; i < Bc / 2; ++i) s[i] -= m_safe[row_of(i)];
  }
  // #endregion

  // With dropout (phase 29): which numbers of P are kept.
  __device__ void draw_kept(std::int64_t first_key) {
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
      if constexpr (Variant::drops)
        band.template flags_of_rows<Bc>(kept[rt], head, H, first_row + warp_row() + 16 * rt + lane_row(), first_key);
  }

  // #region output-product: O += P V
  // O += P V: 16 keys and 16 columns at a time. P is rounded to T as tensor cores take it; l sums the unrounded, of
  // this lane's columns for now. The exps of 16 keys stand beside the products of the 16 before.
  __device__ void add_output(const float (&s)[kRowTiles][Bc / 2], const float (&base)[kRowTiles][2],
                             const std::uint16_t (&V)[Bc][D]) {
    const Fragments<D> v_rows(&tiles, V, a_row(), a_column());
#pragma unroll
    for (int k = 0; k < Bc; k += 16) {
      unsigned p[kRowTiles][4];
#pragma unroll
      for (int j = 0; j < 4 * kRowTiles; ++j) {
        const int rt = j / 4, i = k / 2 + j % 4 * 2, r = row_of(i);
        const float left = ex2_approx_ftz(fmaf(s[rt][i], c, -base[rt][r]));
        const float right = ex2_approx_ftz(fmaf(s[rt][i + 1], c, -base[rt][r]));
        l[rt][r] += left + right;
        p[rt][j % 4] = pack<T>(left, right);
        if (kKeeps) rounded_l[rt][r] += sum_of<T>(p[rt][j % 4]);
        if constexpr (Variant::drops) p[rt][j % 4] &= band.pair_of_rows(kept[rt], k / 8 + j % 4 / 2, r);
      }
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned v[4];
        ldmatrix_x4_trans(v, v_rows.at(k, n * 8));
#pragma unroll
        for (int rt = 0; rt < kRowTiles; ++rt) {
          mma_m16n8k16<T>(c_fragment(o[rt], n), p[rt], {v[0], v[1]}, c_fragment(o[rt], n));
          mma_m16n8k16<T>(c_fragment(o[rt], n + 1), p[rt], {v[2], v[3]}, c_fragment(o[rt], n + 1));
        }
      }
    }
  }
  // #endregion

  // #region multiply: a K/V tile, from S to O
  // A K/V tile, in one of two stages. kMasked: some row may not see all of it.
  template <bool kMasked>
  __device__ void multiply(int tile, int stage) {
    float s[kRowTiles][Bc / 2] = {}, top[kRowTiles][2], base[kRowTiles][2];
    draw_kept(std::int64_t{tile} * Bc);
    scores(s, tiles.K[stage]);
    if constexpr (Variant::modifies)
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt)
        band.score(s[rt], head, H, first_row + warp_row() + 16 * rt + lane_row(), tile * Bc + lane_column());
    if (kMasked) mask(s, std::int64_t{tile} * Bc);
    bool grown = false;
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) grown |= outgrown(rt, top[rt], s[rt]);
    if (__any_sync(0xffffffffu, grown)) {
      bool all = true;
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt) all &= follow(rt, top[rt]);
      moderate = __all_sync(0xffffffffu, all);
      if (!kMasked) slack = rescale_beyond(Bc) / c;
    }
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) subtract(rt, base[rt], s[rt]);
    add_output(s, base, tiles.V[stage]);
  }
  // #endregion

  // #region output: O = O / l, through shared memory
  // One division at the end; a row that saw no key has l = 0 and stays 0. Of the four lanes that share their rows each
  // divides for one. O goes into the warp's rows of Q, which nobody else reads, and from there to HBM.
  __device__ void finish(const OutputsOf<T, Head>& out) {
    __syncwarp();  // all lanes have read their last rows of Q, which O overwrites
    const int t = threadIdx.x % 4, row = warp_row() + lane_row();
    float row_m = 0, row_l = 0, divisor = 0;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const float sum = row_sum(l[i / 2][i % 2]), rounded = kKeeps ? row_sum(rounded_l[i / 2][i % 2]) : sum;
      if (t == i) row_m = m[i / 2][i % 2], row_l = sum, divisor = rounded;
      trace_value("l", first_row + row + 8 * i, sum);
    }
    float inverse = divisor == 0 ? 0.0f : 1 / divisor;
    if constexpr (Variant::drops) inverse *= band.factor;
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) {
      float factor[2];
      for (int r = 0; r < 2; ++r) factor[r] = __shfl_sync(0xffffffffu, inverse, threadIdx.x % 32 - t + 2 * rt + r);
      rescale(o[rt], factor);
    }
    const std::int64_t mine = first_row + row + t * 8;
    if (t < 2 * kRowTiles && mine < out.O.rows) {
      if (out.LSE) out.LSE[mine] = log_sum(row_m * c, row_l);
      if (kKeeps && out.m) out.m[mine] = row_m * c, out.l[mine] = divisor;
    }
    store_output<kKeeps>(o, out, tiles.Q, warp_row(), first_row);
  }
  // #endregion
};

// #region block: copies of a tile while the one after it is multiplied; masked tiles, then whole ones
// What a block does with Q tile number q_tile of a head.
template <class T, int D, int Br, int Bc, bool kKeeps, class Variant>
__device__ void attend(Head<const T> Q /*[Sq, D]*/, Head<const T> K /*[Sk, D]*/, Head<const T> V /*[Sk, D]*/,
                       const OutputsOf<T, Head>& out, float scale_log2 /*scale · log2 e*/, Variant band,
                       std::int64_t q_tile, int head, int H) {
  constexpr int kThreads = Layout<D>::threads(Br);
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const std::int64_t first_row = q_tile * Br;
  const float c = fmaxf(fabsf(scale_log2), 1e-30f);  // a scale of 0 becomes tiny, since -inf · 0 is NaN
  Warp<T, D, Br, Bc, kKeeps, Variant> warp{tiles, first_row, band, c, head, H};
  if constexpr (Variant::modifies) warp.band.begin_rows(warp.m, warp.l, warp.rounded_l, head, H);
  auto range = key_tiles<Br, Bc>(first_row, band);
  int first = 0, cut = 0;  // windows: the first tile; tiles before `cut` are masked, too
  if constexpr (Variant::windows) first = static_cast<int>(range.first), cut = static_cast<int>(range.cut);
  const int* list = nullptr;  // skips: the tiles that there are
  if constexpr (Variant::skips) {
    list = band.list_of_rows(head / H, head % H, static_cast<int>(q_tile));
    range.seen = list[0], range.full = list[1];
  }
  const auto listed = [&](int tile) { return Variant::skips ? list[2 + tile] : tile; };

  const auto begin_copies = [&](auto whole, int tile) {
    const std::int64_t first_key = std::int64_t{listed(tile)} * Bc;
    load_tile<decltype(whole)::value, kThreads>(tiles.K[tile % 2], K, first_key, range.keys);
    load_tile<decltype(whole)::value, kThreads>(tiles.V[tile % 2], V, first_key, range.keys);
    cp_async_commit();
  };
  const auto wait_for = [&](int tile) {
    cp_async_wait<0>();
    __syncthreads();  // all threads' copies are there; and all have read the other stage, which the next ones fill
    if (tile > first) begin_copies(std::true_type(), tile - 1);
  };
  int tile = static_cast<int>(range.seen) - 1;  // from the last to the first: only the first copies look for the end
  if (range.seen > 0) {
    load_tile<false, kThreads>(tiles.Q, Q, first_row, Q.rows);
    begin_copies(std::false_type(), tile);
    cp_async_wait<0>();
    __syncthreads();  // Q is complete: all threads have copied some of it
    warp.begin(scale_log2 < 0);
  }

  const auto masked = [&] {
    trace_mark("masked", tile);
    wait_for(tile);
    if (warp.sees(std::int64_t{listed(tile)} * Bc)) warp.template multiply<true>(listed(tile), tile % 2);
  };
#pragma unroll 1
  for (; tile >= range.full; --tile) masked();
#pragma unroll 1
  for (; tile >= cut; --tile) {
    trace_mark("full", tile);
    wait_for(tile);
    warp.template multiply<false>(listed(tile), tile % 2);
  }
  if constexpr (Variant::windows)
#pragma unroll 1
    for (; tile >= first; --tile) masked();
  warp.finish(out);
}
// #endregion

// #region grid: which block does what
// The grid. Without a mask x is the Q tile and y the head. With one x counts heads first, then Q tiles, the longest
// first: if blocks start in the order of their numbers, short ones fill the gaps in the end.
// kKeeps: what a backward pass needs. Variant: a band that says where things lie (phase 25).
template <class T, int D, int Br, int Bc, bool kKeeps, class Variant>
__global__ void __launch_bounds__(Layout<D>::threads(Br), Layout<D>::blocks)
    attention(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, Hk, Sk, D]*/,
              Heads<const T> V /*[B, Hk, Sk, D]*/, Outputs<T> out, float scale_log2, Variant band, int B, int H) {
  const bool heads_first = band.cuts_right();
  const unsigned heads = B * H;
  unsigned head = heads_first ? blockIdx.x % heads : blockIdx.z * gridDim.y + blockIdx.y;
  unsigned q_tile = heads_first ? (gridDim.x - 1 - blockIdx.x) / heads : blockIdx.x;
  if (head >= heads) return;
  if constexpr (Variant::lengths)
    if (!band.enter_rows(Q, K, V, out, head, q_tile, H)) return;
  const auto rows = band.rows(head, H, 0), keys = band.keys(head, H, 0);
  attend<T, D, Br, Bc, kKeeps>(Q.head(rows.b, rows.h), K.head(keys.b, keys.h), V.head(keys.b, keys.h),
                               outputs_of_head(out, head, H), scale_log2, band, q_tile, head, H);
}
// #endregion

// #region launch: the host's side
struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc, class Variant = PlainOf<std::int64_t>>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = keeps(p) ? attention<T, D, Br, Bc, true, Variant> : attention<T, D, Br, Bc, false, Variant>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const std::int64_t heads = std::int64_t{p.B} * p.H;
    dim3 grid = grid_of(p.Q.rows, Br, heads);
    if (p.band.cuts_right()) grid = dim3(static_cast<unsigned>(grid.x * heads));
    kernel<<<grid, Layout<D>::threads(Br), shared_bytes, p.stream>>>(p.Q, p.K, p.V, outputs_of(p), p.scale_log2,
                                                                     Variant::of(p), p.B, p.H);
  }
};
// #endregion

}  // namespace flash::phase13::inline FLASH_MACHINE
