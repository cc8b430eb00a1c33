// Phase 21: the backward pass on Hopper's instructions. New since 20: tiles come by TMA, and warpgroups make all five
// products by wgmma, out of one copy of each tile: it reads rows as they lie and across. One role, products waited for.
// Run it: ctest -L phase21     The derivation: docs/backward.md
#pragma once
#include "phases/17-persistent/schedule.cuh"  // store_tile, wait_for_stores
#include "phases/21-backward-wgmma/phase.hpp"
#include "phases/21-backward-wgmma/tiles.cuh"

namespace flash::phase21::inline FLASH_MACHINE {

// #region tiles: shared memory of a block, and its barriers
constexpr int kStages = 2;  // one Q tile is multiplied while the next one is loaded
template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t K[Bc / 64][D / 64][64][64];  // of each warpgroup; in the end dK, on its way out
  alignas(1024) std::uint16_t V[Bc / 64][D / 64][64][64];  // likewise dV
  alignas(1024) std::uint16_t Q[kStages][D / 64][Br][64];
  alignas(1024) std::uint16_t dO[kStages][D / 64][Br][64];
  alignas(1024) std::uint16_t dS[kStages][Br / 64][Bc][64];  // dSᵀ, rounded: [panel of queries][key][query]
  RowTerms<Br> rows[kStages];
  // barrier   who arrives          how many       who waits        for what
  // KV_full   the loading thread   1, and bytes   all, once        K and V are there
  // Q_full    the loading thread   1, and bytes   all, before S    the stage's Q and the numbers of its rows are there
  // dO_full   the loading thread   1, and bytes   all, before dP   the stage's dO is there
  // That all have read a stage, which may then be loaded anew, __syncthreads() says.
  std::uint64_t KV_full, Q_full[kStages], dO_full[kStages];
};
// #endregion

// #region consumer: what a thread holds of its warpgroup's 64 keys, and what it does with a Q tile
template <class T, int D, int Br, int Bc, bool kAddQ>
struct Consumer {
  Tiles<D, Br, Bc>& tiles;
  const float scale_log2;
  float* dQ_sum;      // [Br / 16, D / 8, 32 lanes, 4], of the next tile
  float* row_excess;  // [Br], likewise
  const int warpgroup;
  int from[2];  // the first queries that see the lane's two keys, counted from the lane's first column of the next tile

  float s[Br / 2], dp[Br / 2];             // Sᵀ, then Pᵀ; dPᵀ, then dSᵀ
  float dv[D / 2] = {}, dk[D / 2] = {};    // 64 keys
  float dq[32];                            // 64 of the tile's queries, 64 columns
  unsigned p[Br / 16][4], ds[Br / 16][4];  // Pᵀ and dSᵀ, rounded, as left operands

  __device__ Consumer(Tiles<D, Br, Bc>& tiles, float scale_log2, float* dQ_sum, float* row_excess, int warpgroup,
                      int first_row, int first_key, const Band<int>& band)
      : tiles(tiles), scale_log2(scale_log2), dQ_sum(dQ_sum), row_excess(row_excess), warpgroup(warpgroup) {
    const int my_key = first_key + warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane_row();
    for (int r = 0; r < 2; ++r) from[r] = first_query(my_key + 8 * r, band) - first_row - lane_column();
  }
  __device__ __forceinline__ void step(int tile, int stage, unsigned parity, bool masked) {
    trace_mark(masked ? "masked" : "full", tile);
    mbarrier_wait(&tiles.Q_full[stage], parity);
    begin_scores<T>(s, tiles.K[warpgroup], tiles.Q[stage]);
    wgmma_wait<0>(s);
    probabilities(s, tiles.rows[stage], scale_log2);
    if (masked) hide_queries(s, from);
    from[0] -= Br, from[1] -= Br;

    mbarrier_wait(&tiles.dO_full[stage], parity);
    begin_scores<T>(dp, tiles.V[warpgroup], tiles.dO[stage]);
    wgmma_wait<0>(dp);
    gradients(dp, s, tiles.rows[stage]);

    round_p<T>(p, s), round_p<T>(ds, dp);
    begin_output<T>(dv, p, tiles.dO[stage]);
    begin_output<T>(dk, ds, tiles.Q[stage]);
    wgmma_wait<0>(dv, dk, p, ds);
    if (kAddQ) {
      store_ds(tiles.dS[stage], ds, warpgroup * 64);
      fence_proxy_async();  // wgmma is to see what stmatrix wrote
    }
  }
  // Of the tile's Br x D numbers each warpgroup makes 64 x 64: other rows, or other columns. Meanwhile all warps that
  // have a panel of dSᵀ share its keys, and sum.
  __device__ __forceinline__ void add_dq(int stage) {
    constexpr int kPanels = D / 64, kKeys = Bc / (4 * kPanels);
    const int rows = warpgroup / kPanels, columns = warpgroup % kPanels;
    begin_dq<T>(dq, tiles.dS[stage][rows], tiles.K, columns);
    add_excess<T, kKeys>(row_excess + rows * 64, tiles.dS[stage][rows], (columns * 4 + threadIdx.x % 128 / 32) * kKeys);
    wgmma_wait<0>(dq);
    const int row = rows * 64 + threadIdx.x % 128 / 32 * 16;
    float* fragment = dq_fragment<D>(dQ_sum, row, columns * 64);
#pragma unroll
    for (int n = 0; n < 8; ++n) phase20::add_fragment(dq_fragment<D>(fragment, 0, n * 8), c_fragment(dq, n));
    dQ_sum += Br * D, row_excess += Br;
  }
};
// #endregion

// #region setup: whose K/V tile, and the barriers
template <class T, int D, int Br, int Bc, bool kAddQ>
__global__ void __launch_bounds__(Bc * 2, 1)
    keys_backward(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap dO_map,
                  const __grid_constant__ TensorMap K_map, const __grid_constant__ TensorMap V_map,
                  const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map, Backward<T> a,
                  Band<int> band) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const KeyWork work = keys_of_block(a.B * a.H, band.cuts_right());
  const int b = work.head / a.H, h = work.head % a.H, first_key = work.kv_tile * Bc;
  const QueryRange range = query_range<Br, Bc>(first_key, band);
  const int warpgroup = uniform(threadIdx.x / 128);
  const bool loads = threadIdx.x == 0;  // one thread does

  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.KV_full, 1);
    for (int stage = 0; stage < kStages; ++stage)
      mbarrier_init(&tiles.Q_full[stage], 1), mbarrier_init(&tiles.dO_full[stage], 1);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  // #endregion

  // #region first-loads: K and V, and as many Q tiles as there are stages
  const auto load = [&](int tile) {
    const int stage = (tile - range.first) % kStages;
    mbarrier_arrive_expect_tx(&tiles.Q_full[stage], sizeof tiles.Q[stage] + sizeof tiles.rows[stage]);
    load_tile(tiles.Q[stage], &Q_map, &tiles.Q_full[stage], tile * Br, h, b);
    load_row_terms(tiles.rows[stage], a, work.head * a.rows + tile * Br, &tiles.Q_full[stage]);
    mbarrier_arrive_expect_tx(&tiles.dO_full[stage], sizeof tiles.dO[stage]);
    load_tile(tiles.dO[stage], &dO_map, &tiles.dO_full[stage], tile * Br, h, b);
  };
  if (loads && range.first < range.end) {
    mbarrier_arrive_expect_tx(&tiles.KV_full, sizeof tiles.K + sizeof tiles.V);
    for (int i = 0; i < Bc / 64; ++i) {
      load_tile(tiles.K[i], &K_map, &tiles.KV_full, first_key + i * 64, h, b);
      load_tile(tiles.V[i], &V_map, &tiles.KV_full, first_key + i * 64, h, b);
    }
    for (int tile = range.first; tile < min(range.first + kStages, range.end); ++tile) load(tile);
  }
  // #endregion

  // #region loop: over the Q tiles that see the keys
  float* const dQ_sum = kAddQ ? a.dQ_sum + (work.head * a.rows + range.first * Br) * D : nullptr;
  float* const row_excess = a.row_excess + work.head * a.rows + range.first * Br;
  Consumer<T, D, Br, Bc, kAddQ> consumer(tiles, a.scale_log2, dQ_sum, row_excess, warpgroup, range.first * Br,
                                         first_key, band);
  if (range.first < range.end) mbarrier_wait(&tiles.KV_full, 0);
#pragma unroll 1
  for (int tile = range.first, loaded = 0; tile < range.end; ++tile, ++loaded) {
    consumer.step(tile, loaded % kStages, loaded / kStages % 2, tile < range.full);
    __syncthreads();  // both warpgroups have read the stage that is filled next; dS of all keys is there
    if (loads && tile + kStages < range.end) load(tile + kStages);
    if (kAddQ) consumer.add_dq(loaded % kStages);
  }
  // #endregion

  // #region store: dV and dK; scale, once: dS is the gradient of S = scale · Q Kᵀ
  const int my_keys = first_key + warpgroup * 64;
  store_tile<T>(consumer.dv, {1, 1}, tiles.V[warpgroup], &dV_map, my_keys, h, b, warpgroup);
  __syncthreads();  // both have read K, in whose place dK goes out
  store_tile<T>(consumer.dk, {a.scale, a.scale}, tiles.K[warpgroup], &dK_map, my_keys, h, b, warpgroup);
  wait_for_stores();
}
// #endregion

// #region launch
// The host's side: the numbers of rows; dK and dV; dQ. Atomic: the second makes all three, the last rounds dQ.
struct Gradients {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const Backward<T> a = phase20::arguments_of(p);
    const auto kernel = a.dQ_sum ? keys_backward<T, D, Br, Bc, true> : keys_backward<T, D, Br, Bc, false>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const auto grid = static_cast<unsigned>((p.K.rows + Bc - 1) / Bc * p.B * p.H);
    phase20::launch_row_terms<D>(p, a);
    if (grid > 0)
      kernel<<<grid, Bc * 2, shared_bytes, p.stream>>>(
          map_of_queries(p, p.Q, Br), map_of_queries(p, p.dO, Br), map_of_seen_keys(p, p.K), map_of_seen_keys(p, p.V),
          map_of(p.dK, p.B, p.H, 64), map_of(p.dV, p.B, p.H, 64), a, narrow(p.band));
    phase20::launch_dq<D>(p, a);
  }
};
// #endregion

}  // namespace flash::phase21::inline FLASH_MACHINE
