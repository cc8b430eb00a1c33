// Phase 16: overlap. New since 15: S of the next tile is begun before PV of this one, so that the tensor cores have
// work while the other units calculate a softmax.
// Run it: ./flash tour 16     Test it: ./flash test 16
#pragma once
#include "phases/14-tma-wgmma/softmax.cuh"      // Rows, softmax, finish_rows
#include "phases/14-tma-wgmma/tiles.cuh"        // load_tile, begin_scores, begin_output
#include "phases/15-warp-specialised/ring.cuh"  // Ring, Cursor, load_keys
#include "phases/16-overlap/phase.hpp"

namespace flash::phase16::inline FLASH_MACHINE {

// #region tiles: shared memory of a block, and its barriers
constexpr int kStages = 2;
template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t Q[Br / 64][D / 64][64][64];  // of each warpgroup
  alignas(1024) std::uint16_t K[kStages][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[kStages][D / 64][Bc][64];
  // barrier        who arrives                       how many       who waits                for what
  // Q_full         the loading thread                1, and bytes   consumers, once          Q is there
  // K_ring.full    the loading thread                1, and bytes   consumers, before S      the stage's K is there
  // K_ring.empty   a lane of each consumer's warp    Br / 16        the loading thread       nobody reads it any more
  // V_ring         as K_ring, but before PV
  std::uint64_t Q_full;
  Ring<kStages> K_ring, V_ring;
};

// Registers per thread: the block is launched with 168 for each; 128 · (2 · 232 + 40) are no more than 384 · 168.
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
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
  Cursor<kStages> K, V;

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
  __device__ __forceinline__ void next_scores() {
    tiles.K_ring.wait_full(K);
    begin_scores<T>(s, tiles.Q[warpgroup], tiles.K[K.stage]);
  }
  __device__ __forceinline__ void next_output() {
    tiles.V_ring.wait_full(V);
    begin_output<T>(o, p, tiles.V[V.stage]);
  }
  __device__ __forceinline__ void step(int tile) {
    trace_mark("tile", tile);
    next_scores();     // S of this tile
    next_output();     // PV of the tile before
    wgmma_wait<1>(s);  // all but the last: S is there
    tiles.K_ring.release(K), K.next();
    probabilities(tile);
    wgmma_wait<0>(o, p);
    tiles.V_ring.release(V), V.next();
    rescale(o, alpha);
    round_p<T>(p, s);
  }
  // All K/V tiles, of which there is at least one, from the last to the first.
  __device__ __forceinline__ void run(int count) {
    next_scores();
    wgmma_wait<0>(s);
    tiles.K_ring.release(K), K.next();
    probabilities(count - 1);
    round_p<T>(p, s);
    for (int tile = count - 2; tile >= 0; --tile) step(tile);
    next_output();
    wgmma_wait<0>(o, p);
    tiles.V_ring.release(V), V.next();
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
__global__ void __launch_bounds__(Br * 2 + 128, 1)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, Band<int> band, int B, int H) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const Work work = work_of_block(B * H, band.cuts_right());
  const int b = work.head / H, h = work.head % H, first_row = work.q_tile * Br;
  const TileRange range = tile_range<Br, Bc>(first_row, band);
  const int warpgroup = uniform(threadIdx.x / 128);

  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.Q_full, 1);
    tiles.K_ring.init(Br / 16), tiles.V_ring.init(Br / 16);  // warps
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  // #endregion

  // #region producer: one thread loads
  if (warpgroup == Br / 64) {
    setmaxnreg_dec<kProducerRegisters>();
    const bool loads = threadIdx.x % 128 == 0;
    if (!loads || range.seen == 0) return;
    mbarrier_arrive_expect_tx(&tiles.Q_full, sizeof tiles.Q);
    for (int i = 0; i < Br / 64; ++i) load_tile(tiles.Q[i], &Q_map, &tiles.Q_full, first_row + i * 64, h, b);
    Cursor<kStages> K, V;
    load_keys(tiles, K, V, &K_map, &V_map, range.seen, 0, h, b, [](int) {});
    return;
  }
  // #endregion

  // #region loop: the consumers
  setmaxnreg_inc<kConsumerRegisters>();
  Consumer<T, D, Br, Bc> consumer(tiles, band, scale_log2, warpgroup);
  consumer.begin(first_row, range.full);
  if (range.seen > 0) {
    mbarrier_wait(&tiles.Q_full, 0);
    consumer.run(range.seen);
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
    constexpr int threads = Br * 2 + 128;
    kernel<<<grid, threads, shared_bytes, p.stream>>>(map_of(p.Q, p.B, p.H, 64), map_of_keys(p, p.K, Bc),
                                                      map_of_keys(p, p.V, Bc), p.O, p.LSE, p.scale_log2, narrow(p.band),
                                                      p.B, p.H);
  }
};
// #endregion

}  // namespace flash::phase16::inline FLASH_MACHINE
