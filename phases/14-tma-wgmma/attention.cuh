// Phase 14: Hopper's own instructions. New: one thread copies whole tiles (TMA) and a barrier counts their bytes; a
// warpgroup of 128 threads multiplies out of shared memory (wgmma) while its registers wait for the result.
// Run it: ./flash tour 14     Test it: ./flash test 14
#pragma once
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/14-tma-wgmma/softmax.cuh"  // Rows, softmax, finish_rows
#include "phases/14-tma-wgmma/tiles.cuh"    // load_tile, begin_scores, begin_output

namespace flash::phase14::inline FLASH_MACHINE {

// #region tiles: shared memory of a block, and its barriers
constexpr int kStages = 2;  // one K/V tile is multiplied while the next one is loaded
template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t Q[Br / 64][D / 64][64][64];  // of each warpgroup
  alignas(1024) std::uint16_t K[kStages][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[kStages][D / 64][Bc][64];
  // barrier    who arrives          how many       who waits        for what
  // Q_full     the loading thread   1, and bytes   all, once        Q is there
  // K_full     the loading thread   1, and bytes   all, before S    the stage's K is there
  // V_full     the loading thread   1, and bytes   all, before PV   the stage's V is there
  // That all have read a stage, which may then be loaded anew, __syncthreads() says.
  std::uint64_t Q_full, K_full[kStages], V_full[kStages];
};
// #endregion

// #region consumer: what a thread holds of its warpgroup's 64 rows, and what it does with a K/V tile
template <class T, int D, int Br, int Bc>
struct Consumer {
  Tiles<D, Br, Bc>& tiles;
  const Band<int> band;
  const float scale_log2;
  const int warpgroup, lane = threadIdx.x % 32;
  const int my_row = warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;  // of the Q tile; and the one 8 below
  const float c = factor_of(scale_log2), sign = sign_of(scale_log2);

  int row, masked, seen[2];  // row: my_row, of all. From tile `masked` on: seen[2] keys, from the lane's first column
  Rows rows;                 // m and l
  float s[Bc / 2], o[D / 2] = {}, alpha[2];  // S, then P; O; by what O must be multiplied
  unsigned p[Bc / 16][4];                    // P, rounded, as the left operand of PV

  __device__ Consumer(Tiles<D, Br, Bc>& tiles, const Band<int>& band, float scale_log2, int warpgroup)
      : tiles(tiles), band(band), scale_log2(scale_log2), warpgroup(warpgroup) {}
  __device__ __forceinline__ void begin(int first_row, int full) {
    row = first_row + my_row;
    masked = scale_log2 < 0 ? 0 : full;  // from this tile on; all where signs must be turned
    seen[0] = band.end(row) - lane % 4 * 2, seen[1] = band.end(row + 8) - lane % 4 * 2;
  }
  __device__ __forceinline__ void probabilities(int tile) {
    if (tile >= masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
    softmax(s, rows, alpha, c);
    trace_value("m", row, rows.m[0]), trace_value("alpha", row, alpha[0]);
    trace_value("m", row + 8, rows.m[1]), trace_value("alpha", row + 8, alpha[1]);
  }
  __device__ __forceinline__ void step(int tile, int stage, unsigned parity) {
    trace_mark("tile", tile);
    mbarrier_wait(&tiles.K_full[stage], parity);
    begin_scores<T>(s, tiles.Q[warpgroup], tiles.K[stage]);
    wgmma_wait<0>(s);
    probabilities(tile);
    rescale(o, alpha);
    round_p<T>(p, s);
    mbarrier_wait(&tiles.V_full[stage], parity);
    begin_output<T>(o, p, tiles.V[stage]);
    wgmma_wait<0>(o, p);
  }
  __device__ __forceinline__ void finish(Head<T> O, float* LSE) {
    float factor[2];
    finish_rows(rows, factor, LSE, row, band.Sq, c);
    store_output(o, factor, O, row);
  }
};
// #endregion

// #region setup: whose Q tile, and the barriers
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br * 2, 1)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, Band<int> band, int B, int H) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const Work work = work_of_block(B * H, band.cuts_right());
  const int b = work.head / H, h = work.head % H, first_row = work.q_tile * Br;
  const TileRange range = tile_range<Br, Bc>(first_row, band);
  const int warpgroup = uniform(threadIdx.x / 128);
  const bool loads = threadIdx.x == 0;  // one thread does

  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.Q_full, 1);
    for (int stage = 0; stage < kStages; ++stage)
      mbarrier_init(&tiles.K_full[stage], 1), mbarrier_init(&tiles.V_full[stage], 1);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  // #endregion

  // #region first-loads: Q, and as many K/V tiles as there are stages
  const auto load = [&](int tile) {
    const int stage = tile % kStages;
    mbarrier_arrive_expect_tx(&tiles.K_full[stage], sizeof tiles.K[stage]);
    load_tile(tiles.K[stage], &K_map, &tiles.K_full[stage], tile * Bc, h, b);
    mbarrier_arrive_expect_tx(&tiles.V_full[stage], sizeof tiles.V[stage]);
    load_tile(tiles.V[stage], &V_map, &tiles.V_full[stage], tile * Bc, h, b);
  };
  if (loads && range.seen > 0) {
    mbarrier_arrive_expect_tx(&tiles.Q_full, sizeof tiles.Q);
    for (int i = 0; i < Br / 64; ++i) load_tile(tiles.Q[i], &Q_map, &tiles.Q_full, first_row + i * 64, h, b);
    for (int tile = range.seen - 1; tile >= 0 && tile >= range.seen - kStages; --tile) load(tile);
  }
  // #endregion

  // #region loop: from the last tile to the first
  Consumer<T, D, Br, Bc> consumer(tiles, band, scale_log2, warpgroup);
  consumer.begin(first_row, range.full);
  if (range.seen > 0) mbarrier_wait(&tiles.Q_full, 0);
  for (int tile = range.seen - 1, loaded = 0; tile >= 0; --tile, ++loaded) {
    consumer.step(tile, tile % kStages, loaded / kStages % 2);  // a stage's barrier flips each time it is full
    __syncthreads();  // both warpgroups have read the stage that is filled next
    if (loads && tile >= kStages) load(tile - kStages);
  }
  consumer.finish(O.head(b, h), LSE ? LSE + work.head * O.rows : nullptr);
}
// #endregion

// #region launch
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
    constexpr int threads = Br * 2;
    kernel<<<grid, threads, shared_bytes, p.stream>>>(map_of(p.Q, p.B, p.H, 64), map_of_keys(p, p.K, Bc),
                                                      map_of_keys(p, p.V, Bc), p.O, p.LSE, p.scale_log2, narrow(p.band),
                                                      p.B, p.H);
  }
};
// #endregion

}  // namespace flash::phase14::inline FLASH_MACHINE
