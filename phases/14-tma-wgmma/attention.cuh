// Phase 14: Hopper's own instructions. New: one thread copies whole tiles (TMA) and a barrier counts their bytes; a
// warpgroup of 128 threads multiplies out of shared memory (wgmma) while its registers wait for the result.
// Run it: ./flash tour 14     Test it: ./flash test 14
#pragma once
#include "gpu/hopper.cuh"
#include "phases/12-async-copies/attention.cuh"
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase14::inline FLASH_MACHINE {

// #region uniform
// A number that is the same in all lanes. By this the compiler knows it too, and keeps what follows from it, such as
// the addresses of wgmma's operands, in registers of the warp rather than of each lane.
__device__ inline int uniform(int number) {
  return static_cast<int>(__reduce_max_sync(0xffffffffu, static_cast<unsigned>(number)));
}
// #endregion

// #region tiles
// Shared memory of a block. A tile is D / 64 panels of 64 columns: a row of a panel has 128 bytes, in which TMA and
// wgmma swizzle 16-byte pieces alike, by the row's number modulo 8. Elements of 16 bits, as bits.
constexpr int kStages = 2;
template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t Q[Br / 64][D / 64][64][64];  // of each warpgroup
  alignas(1024) std::uint16_t K[kStages][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[kStages][D / 64][Bc][64];
  std::uint64_t Q_full, K_full[kStages], V_full[kStages];  // mbarriers: are the bytes there?
};
// #endregion

// #region keys
// TMA counts rows in 32 bits, and so does the kernel (at most 2^30). Row i sees keys 0 … visible(i) - 1.
struct Mask {
  int shift, Sq, Sk;  // top-left: shift = 0, bottom-right: Sk - Sq, none: Sk
  __device__ int visible(int i) const { return max(0, min(i + 1 + shift, Sk)); }
};

// Of Br rows: K/V tiles 0 … full - 1 are seen whole by each of them, full … seen - 1 in part, the others by none.
struct TileRange {
  int full, seen;
};
template <int Br, int Bc>
__device__ TileRange tile_range(int first_row, const Mask& mask) {
  const int keys = mask.visible(min(first_row + Br, mask.Sq) - 1);
  return {mask.visible(first_row) / Bc, (keys + Bc - 1) / Bc};
}
// #endregion

// #region load-tile
// One thread begins to copy rows first … first + kRows - 1 of head (b, h) into a tile: TMA knows from the map where
// they are, writes zeros for what is outside of the tensor, and tells the barrier each byte that has arrived.
template <int kPanels, int kRows>
__device__ void load_tile(std::uint16_t (&tile)[kPanels][kRows][64], const TensorMap* map, std::uint64_t* full,
                          int first, int h, int b) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) cp_async_bulk_tensor(tile[panel], map, full, 64 * panel, first, h, b);
}
// #endregion

// #region products
// Begins S = Q Kᵀ for the warpgroup's 64 rows, 16 columns of Q and K at a time. Both lie as their rows do (K-major):
// 16 columns further on is 32 bytes further on, within a panel.
// In the accumulators lane l of warp w has the rows 16 w + l / 4 and 8 further down, and of each 8 columns 2 (l % 4)
// and the next one: element i belongs to row i / 2 % 2 of the lane's and to column 8 (i / 4) + 2 (l % 4) + i % 2.
template <class T, int kPanels, int Bc>
__device__ void begin_scores(float (&s)[Bc / 2], const std::uint16_t (&Q)[kPanels][64][64],
                             const std::uint16_t (&K)[kPanels][Bc][64]) {
  const MatrixDescriptor q = matrix_descriptor(Q), k = matrix_descriptor(K);
  wgmma_fence();
#pragma unroll
  for (int d = 0; d < kPanels * 64; d += 16)
    wgmma_m64nNk16<T>(s, q + (d / 64 * sizeof Q[0] + d % 64 * 2), k + (d / 64 * sizeof K[0] + d % 64 * 2), d != 0);
  wgmma_commit();
}

// Begins O += P V, 16 keys at a time. P comes from registers; of V (MN-major: its rows are keys) the panels are
// sizeof V[0] bytes apart, and 16 keys are 16 rows of 128 bytes.
template <class T, int kPanels, int Bc>
__device__ void begin_output(float (&o)[kPanels * 32], const unsigned (&p)[Bc / 16][4],
                             const std::uint16_t (&V)[kPanels][Bc][64]) {
  const MatrixDescriptor v = matrix_descriptor(V, sizeof V[0]);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < Bc; k += 16) wgmma_m64nNk16<T, Major::MN>(o, p[k / 16], v + k * 128, true);
  wgmma_commit();
}

// P as the left operand: the accumulators' layout is the one that it wants.
template <class T, int Bc>
__device__ void round_p(unsigned (&p)[Bc / 16][4], const float (&s)[Bc / 2]) {
#pragma unroll
  for (int i = 0; i < Bc / 4; ++i) p[i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
}
// #endregion

// #region softmax
// The state of online softmax (phase 02) of the lane's two rows; l is of the lane's own columns until the end.
struct Rows {
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {};
};

// -inf for what a row does not see, by selection; seen: how many of the tile's columns, from the lane's first one on,
// its two rows see. A negative scale turns the signs of S here: sign is 1 or -1.
template <int kRegisters>
__device__ void hide(float (&s)[kRegisters], const int (&seen)[2], float sign) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) s[i] = i / 4 * 8 + i % 2 >= seen[i / 2 % 2] ? -INFINITY : s[i] * sign;
}

// c > 0 of P = exp2(c · S - c · m): scale = 0 becomes tiny, since -inf · 0 is NaN.
__device__ inline float factor_of(float scale_log2) {
  return fmaxf(fabsf(scale_log2), 1e-30f);
}

// The rows' maxima, of what was seen before too.
template <int kRegisters>
__device__ void maxima(const float (&s)[kRegisters], const Rows& rows, float (&m)[2]) {
  float top[2][2] = {{rows.m[0], s[0]}, {rows.m[1], s[2]}};
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) top[i / 2 % 2][i % 2] = fmaxf(top[i / 2 % 2][i % 2], s[i]);
  m[0] = row_max(fmaxf(top[0][0], top[0][1])), m[1] = row_max(fmaxf(top[1][0], top[1][1]));
}

// Is c · m too large for what follows? NaN and infinity are not: they are lost anyway, and must not change the way in
// which other rows are rounded.
__device__ inline bool is_extreme(float base) {
  return fabsf(base) > 512 && base < INFINITY;
}

// Where c · m is large its rounding would show in P, and where no key was seen -inf - -inf is NaN: there m is
// subtracted first, and P = exp2(c · S - 0).
template <int kRegisters>
__device__ void subtract(float (&s)[kRegisters], Rows& rows, const float (&m)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float m_safe = m[r] == -INFINITY ? 0.0f : m[r];
#pragma unroll
    for (int i = 2 * r; i < kRegisters; i += i % 2 ? 3 : 1) s[i] -= m_safe;
    rows.m[r] -= m_safe;
  }
}

// P = exp2(c · S - base), in place; m, l go on. alpha: by what O must be multiplied, exactly 1 where the maximum stays,
// or l and O would drift with each tile: c · m is rounded as base was before base is subtracted.
template <int kRegisters>
__device__ void exponentials(float (&s)[kRegisters], Rows& rows, float (&alpha)[2], float c, const float (&m)[2],
                             const float (&base)[2]) {
  float sum[2][2] = {};
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    s[i] = ex2_approx_ftz(fmaf(s[i], c, -base[i / 2 % 2]));
    sum[i / 2 % 2][i % 2] += s[i];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    alpha[r] = ex2_approx_ftz(c * rows.m[r] - base[r]);
    rows.l[r] = fmaf(rows.l[r], alpha[r], sum[r][0] + sum[r][1]), rows.m[r] = m[r];
  }
}

template <int kRegisters>
__device__ void softmax(float (&s)[kRegisters], Rows& rows, float (&alpha)[2], float c) {
  float m[2];
  maxima(s, rows, m);
  float base[2] = {c * m[0], c * m[1]};
  if (__any_sync(0xffffffffu, is_extreme(base[0]) || is_extreme(base[1]))) {
    subtract(s, rows, m);
    base[0] = base[1] = 0;
  }
  exponentials(s, rows, alpha, c, m, base);
}

template <int kRegisters>
__device__ void rescale(float (&o)[kRegisters], const float (&alpha)[2]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) o[i] *= alpha[i / 2 % 2];
}
// #endregion

// #region output
// What O must be multiplied by in the end; a row that saw no key has l = 0 and stays 0. LSE = log Σ exp(s) goes out;
// -inf + -inf = -inf where no key was seen. Of the four lanes that share two rows each divides for one.
__device__ inline void finish_rows(const Rows& rows, float (&factor)[2], float* LSE, int row, int Sq, float c) {
  const int lane = threadIdx.x % 32, t = lane % 4, r = t % 2;
  const float sums[2] = {row_sum(rows.l[0]), row_sum(rows.l[1])};
  const float l = r == 0 ? sums[0] : sums[1], m = r == 0 ? rows.m[0] : rows.m[1];
  const float inverse = l == 0 ? 0.0f : 1 / l;
  trace_value("l", row + 8 * r, l);
  factor[0] = __shfl_sync(0xffffffffu, inverse, lane - t), factor[1] = __shfl_sync(0xffffffffu, inverse, lane - t + 1);
  if (LSE && t < 2 && row + 8 * r < Sq) LSE[row + 8 * r] = fmaf(m * c, 0.693147181f, logf(l));
}

template <class T, int kRegisters>
__device__ void store_output(const float (&o)[kRegisters], const float (&factor)[2], Head<T> O, int row) {
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
    const int at = row + 8 * (i / 2 % 2);
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2;
    auto* to = reinterpret_cast<std::uint16_t*>(O.data) + at * O.stride + column;
    if (at < O.rows && column < O.cols) store2(to, pack<T>(o[i] * factor[i / 2 % 2], o[i + 1] * factor[i / 2 % 2]));
  }
}
// #endregion

// #region setup
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br * 2, 1)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, Mask mask, int B, int H) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  // Without a mask the blocks go through a head's Q tiles, then through the next one's; with one, as in phase 13, the
  // longest Q tiles of all heads come first.
  const bool longest_first = mask.shift < mask.Sk;
  const unsigned heads = B * H, q_tiles = gridDim.x / heads;
  const unsigned head = longest_first ? blockIdx.x % heads : blockIdx.x / q_tiles;
  const unsigned q_tile = longest_first ? q_tiles - 1 - blockIdx.x / heads : blockIdx.x % q_tiles;
  const int b = head / H, h = head % H;

  // The barriers' first phase: one arrival, that of the thread which says how many bytes to wait for.
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.Q_full, 1);
    for (int stage = 0; stage < kStages; ++stage)
      mbarrier_init(&tiles.K_full[stage], 1), mbarrier_init(&tiles.V_full[stage], 1);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  // #endregion

  // #region first-loads
  const int first_row = q_tile * Br;
  const TileRange range = tile_range<Br, Bc>(first_row, mask);
  const auto load = [&](int tile) {  // by one thread
    const int stage = tile % kStages;
    mbarrier_arrive_expect_tx(&tiles.K_full[stage], sizeof tiles.K[stage]);
    load_tile(tiles.K[stage], &K_map, &tiles.K_full[stage], tile * Bc, h, b);
    mbarrier_arrive_expect_tx(&tiles.V_full[stage], sizeof tiles.V[stage]);
    load_tile(tiles.V[stage], &V_map, &tiles.V_full[stage], tile * Bc, h, b);
  };
  if (threadIdx.x == 0 && range.seen > 0) {
    mbarrier_arrive_expect_tx(&tiles.Q_full, sizeof tiles.Q);
    for (int i = 0; i < Br / 64; ++i) load_tile(tiles.Q[i], &Q_map, &tiles.Q_full, first_row + i * 64, h, b);
    for (int tile = range.seen - 1; tile >= 0 && tile >= range.seen - kStages; --tile) load(tile);
  }
  // #endregion

  // #region loop
  // From the last tile to the first.
  const int warpgroup = uniform(threadIdx.x / 128), lane = threadIdx.x % 32;
  const int row = first_row + warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
  const float c = factor_of(scale_log2), sign = scale_log2 < 0 ? -1.0f : 1.0f;
  const int masked = scale_log2 < 0 ? 0 : range.full;  // from this tile on
  const int seen[2] = {mask.visible(row) - lane % 4 * 2, mask.visible(row + 8) - lane % 4 * 2};
  Rows rows;
  float o[D / 2] = {};
  if (range.seen > 0) mbarrier_wait(&tiles.Q_full, 0);
  for (int tile = range.seen - 1, loaded = 0; tile >= 0; --tile, ++loaded) {
    const int stage = tile % kStages;
    const unsigned parity = loaded / kStages % 2;  // a stage's barrier flips each time it is full
    trace_mark("tile", tile);
    float s[Bc / 2], alpha[2];
    mbarrier_wait(&tiles.K_full[stage], parity);
    begin_scores<T>(s, tiles.Q[warpgroup], tiles.K[stage]);
    wgmma_wait<0>(s);
    if (tile >= masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
    softmax(s, rows, alpha, c);
    trace_value("m", row, rows.m[0]), trace_value("alpha", row, alpha[0]);
    trace_value("m", row + 8, rows.m[1]), trace_value("alpha", row + 8, alpha[1]);
    rescale(o, alpha);
    unsigned p[Bc / 16][4];
    round_p<T, Bc>(p, s);
    mbarrier_wait(&tiles.V_full[stage], parity);
    begin_output<T>(o, p, tiles.V[stage]);
    wgmma_wait<0>(o, p);
    __syncthreads();  // both warpgroups have read the stage that is filled next
    if (threadIdx.x == 0 && tile >= kStages) load(tile - kStages);
  }
  // #endregion

  // #region end
  float factor[2];
  finish_rows(rows, factor, LSE ? LSE + head * O.rows : nullptr, row, mask.Sq, c);
  store_output(o, factor, O.head(b, h), row);
}
// #endregion

// #region launch
// A tensor as TMA sees it: columns, rows, heads, batch; boxes of 64 columns and so many rows.
template <class T>
TensorMap map_of(const Heads<T>& x, int B, int H, int box_rows) {
  const auto bytes = [](std::int64_t size, std::int64_t stride) {  // of an axis of length 1 the stride says nothing
    return static_cast<std::uint64_t>(size > 1 ? stride : 8) * sizeof(T);
  };
  return tensor_map<std::remove_const_t<T>, 4>(x.data,
                                               {static_cast<std::uint64_t>(x.cols), static_cast<std::uint64_t>(x.rows),
                                                static_cast<std::uint64_t>(H), static_cast<std::uint64_t>(B)},
                                               {bytes(x.rows, x.stride), bytes(H, x.h_stride), bytes(B, x.b_stride)},
                                               {64, static_cast<std::uint32_t>(box_rows), 1, 1});
}

// K or V. Rows that no row of Q sees are as if they were not there: TMA writes zeros for them (0 · NaN is NaN).
template <class T>
TensorMap map_of_keys(const DeviceProblem<T>& p, Heads<const T> x, int box_rows) {
  x.rows = std::max<std::int64_t>(0, std::min(p.Q.rows + p.shift, x.rows));
  return map_of(x.rows > 0 ? x : p.Q, p.B, p.H, box_rows);  // x has no address where it has no rows
}
template <class T>
Mask mask_of(const DeviceProblem<T>& p) {
  return {static_cast<int>(p.shift), static_cast<int>(p.Q.rows), static_cast<int>(p.K.rows)};
}

struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = attention<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const std::int64_t heads = std::int64_t{p.B} * p.H;
    const auto grid = static_cast<unsigned>((p.Q.rows + Br - 1) / Br * heads);
    kernel<<<grid, Br * 2, shared_bytes, p.stream>>>(map_of(p.Q, p.B, p.H, 64), map_of_keys(p, p.K, Bc),
                                                     map_of_keys(p, p.V, Bc), p.O, p.LSE, p.scale_log2, mask_of(p), p.B,
                                                     p.H);
  }
};
// #endregion

}  // namespace flash::phase14::inline FLASH_MACHINE
