// Phase 22: roles in the backward pass, and an order that hides. New since 21: one warpgroup does nothing but load; a
// product runs while numbers of another one are worked on: dP under P, dV on dS's way to shared memory, dK under dQ's.
// Run it: ctest -L phase22     The derivation: docs/backward.md
#pragma once
#include "phases/15-warp-specialised/ring.cuh"  // Ring, Cursor
#include "phases/17-persistent/schedule.cuh"    // store_tile, wait_for_stores
#include "phases/21-backward-wgmma/tiles.cuh"
#include "phases/22-backward-roles/phase.hpp"

namespace flash::phase22::inline FLASH_MACHINE {

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
  // barrier         who arrives                     how many       who waits                for what
  // KV_full         the loading thread              1, and bytes   consumers, once          K and V are there
  // Q_ring.full     the loading thread              1, and bytes   consumers, before S      Q, the numbers of its rows
  // Q_ring.empty    a lane of each consumer's warp  Bc / 16        the loading thread       nobody reads them any more
  // dO_ring         as Q_ring, but before dP
  // kOfConsumers, a named one: all consumers        Bc * 2         they, before dQ          dS of all keys is there
  std::uint64_t KV_full;
  Ring<kStages> Q_ring, dO_ring;
};
constexpr int kOfConsumers = 3;  // 1 and 2 are store_tile's

// Registers per thread: the block is launched with 168 for each; 128 · (2 · 240 + 24) are no more than 384 · 168.
constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
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
  Cursor<kStages> at;                      // of Q and dO

  __device__ Consumer(Tiles<D, Br, Bc>& tiles, float scale_log2, float* dQ_sum, float* row_excess, int warpgroup,
                      int first_row, int first_key, const Band<int>& band)
      : tiles(tiles), scale_log2(scale_log2), dQ_sum(dQ_sum), row_excess(row_excess), warpgroup(warpgroup) {
    const int my_key = first_key + warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane_row();
    for (int r = 0; r < 2; ++r) from[r] = first_query(my_key + 8 * r, band) - first_row - lane_column();
  }
  __device__ __forceinline__ void step(int tile, bool masked) {
    trace_mark(masked ? "masked" : "full", tile);
    const auto& rows = tiles.rows[at.stage];
    tiles.Q_ring.wait_full(at);
    begin_scores<T>(s, tiles.K[warpgroup], tiles.Q[at.stage]);
    tiles.dO_ring.wait_full(at);
    begin_scores<T>(dp, tiles.V[warpgroup], tiles.dO[at.stage]);
    wgmma_wait<1>(s);  // all but the last: S is there
    probabilities(s, rows, scale_log2);
    if (masked) hide_queries(s, from);
    from[0] -= Br, from[1] -= Br;
    wgmma_wait<0>(dp);
    gradients(dp, s, rows);
    round_p<T>(p, s), round_p<T>(ds, dp);
    if (kAddQ) store_ds(tiles.dS[at.stage], ds, warpgroup * 64);
    begin_output<T>(dv, p, tiles.dO[at.stage]);
    if (kAddQ) {
      fence_proxy_async();             // wgmma is to see what stmatrix wrote
      bar_sync(kOfConsumers, Bc * 2);  // dS of all keys is there; all have read the one before the last
      begin_dq<T>(dq, tiles.dS[at.stage][unit_row()], tiles.K, unit_column());
    }
    wgmma_wait<kAddQ>(dv, p);
    tiles.dO_ring.release(at);
    begin_output<T>(dk, ds, tiles.Q[at.stage]);
    if (kAddQ) {
      sum_rows();
      wgmma_wait<1>(dq);
      add_dq();
    }
    wgmma_wait<0>(dk, ds);
    __syncwarp();  // all lanes have read the numbers of rows
    tiles.Q_ring.release(at), at.next();
  }
  // Of the tile's Br x D numbers of dQ each warpgroup makes 64 x 64: other rows, or other columns.
  __device__ int unit_row() const { return warpgroup / (D / 64); }
  __device__ int unit_column() const { return warpgroup % (D / 64); }
  // All warps that have a panel of dSᵀ share its keys.
  __device__ __forceinline__ void sum_rows() {
    constexpr int kPanels = D / 64, kKeys = Bc / (4 * kPanels);
    add_excess<T, kKeys>(row_excess + unit_row() * 64, tiles.dS[at.stage][unit_row()],
                         (unit_column() * 4 + threadIdx.x % 128 / 32) * kKeys);
  }
  __device__ __forceinline__ void add_dq() {
    const int row = unit_row() * 64 + threadIdx.x % 128 / 32 * 16;
    float* fragment = dq_fragment<D>(dQ_sum, row, unit_column() * 64);
#pragma unroll
    for (int n = 0; n < 8; ++n) phase20::add_fragment(dq_fragment<D>(fragment, 0, n * 8), c_fragment(dq, n));
    dQ_sum += Br * D, row_excess += Br;
  }
};
// #endregion

// #region setup: whose K/V tile, and the barriers
template <class T, int D, int Br, int Bc, bool kAddQ>
__global__ void __launch_bounds__(Bc * 2 + 128, 1)
    keys_backward(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap dO_map,
                  const __grid_constant__ TensorMap K_map, const __grid_constant__ TensorMap V_map,
                  const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map, Backward<T> a,
                  Band<int> band) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const KeyWork work = keys_of_block(a.B * a.H, band.cuts_right());
  const int b = work.head / a.H, h = work.head % a.H, first_key = work.kv_tile * Bc;
  const QueryRange range = query_range<Br, Bc>(first_key, band);
  const int warpgroup = uniform(threadIdx.x / 128);

  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.KV_full, 1);
    tiles.Q_ring.init(Bc / 16), tiles.dO_ring.init(Bc / 16);  // warps
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  // #endregion

  // #region producer: one thread loads
  if (warpgroup == Bc / 64) {
    setmaxnreg_dec<kProducerRegisters>();
    const bool loads = threadIdx.x % 128 == 0;
    if (!loads || range.first >= range.end) return;
    mbarrier_arrive_expect_tx(&tiles.KV_full, sizeof tiles.K + sizeof tiles.V);
    for (int i = 0; i < Bc / 64; ++i) {
      load_tile(tiles.K[i], &K_map, &tiles.KV_full, first_key + i * 64, h, b);
      load_tile(tiles.V[i], &V_map, &tiles.KV_full, first_key + i * 64, h, b);
    }
    Cursor<kStages> at;
#pragma unroll 1
    for (int tile = range.first; tile < range.end; ++tile, at.next()) {
      std::uint64_t* const full = &tiles.Q_ring.full[at.stage];
      tiles.Q_ring.wait_empty(at);
      mbarrier_arrive_expect_tx(full, sizeof tiles.Q[0] + sizeof tiles.rows[0]);
      load_tile(tiles.Q[at.stage], &Q_map, full, tile * Br, h, b);
      load_row_terms(tiles.rows[at.stage], a, work.head * a.rows + tile * Br, full);
      tiles.dO_ring.fill(tiles.dO, at, &dO_map, tile * Br, h, b);
    }
    return;
  }
  // #endregion

  // #region loop: the consumers, over the Q tiles that see the keys
  setmaxnreg_inc<kConsumerRegisters>();
  float* const dQ_sum = kAddQ ? a.dQ_sum + (work.head * a.rows + range.first * Br) * D : nullptr;
  float* const row_excess = a.row_excess + work.head * a.rows + range.first * Br;
  Consumer<T, D, Br, Bc, kAddQ> consumer(tiles, a.scale_log2, dQ_sum, row_excess, warpgroup, range.first * Br,
                                         first_key, band);
  if (range.first < range.end) mbarrier_wait(&tiles.KV_full, 0);
#pragma unroll 1
  for (int left = range.end - range.first, masked = range.full - range.first; left > 0; --left, --masked)
    consumer.step(range.end - left, masked > 0);
  // #endregion

  // #region store: dV and dK; scale, once: dS is the gradient of S = scale · Q Kᵀ
  const int my_keys = first_key + warpgroup * 64;
  store_tile<T>(consumer.dv, {1, 1}, tiles.V[warpgroup], &dV_map, my_keys, h, b, warpgroup);
  bar_sync(kOfConsumers, Bc * 2);  // both have read K, in whose place dK goes out
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
    constexpr int threads = Bc * 2 + 128;
    phase20::launch_row_terms<D>(p, a);
    if (grid > 0)
      kernel<<<grid, threads, shared_bytes, p.stream>>>(
          map_of_queries(p, p.Q, Br), map_of_queries(p, p.dO, Br), map_of_seen_keys(p, p.K), map_of_seen_keys(p, p.V),
          map_of(p.dK, p.B, p.H, 64), map_of(p.dV, p.B, p.H, 64), a, narrow(p.band));
    phase20::launch_dq<D>(p, a);
  }
};
// #endregion

}  // namespace flash::phase22::inline FLASH_MACHINE
