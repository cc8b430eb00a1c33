// Phase 15: roles. New since 14: one warpgroup does nothing but load (the producer), the others nothing but calculate
// (the consumers). Barriers tell the one which stages are empty and the others which are full; registers move over.
// Run it: ./flash tour 15     Test it: ./flash test 15
#pragma once
#include "phases/14-tma-wgmma/attention.cuh"
#include "phases/15-warp-specialised/phase.hpp"

namespace flash::phase15::inline FLASH_MACHINE {

// #region tiles
using phase14::begin_output, phase14::begin_scores, phase14::factor_of, phase14::finish_rows, phase14::hide,
    phase14::kStages, phase14::load_tile, phase14::map_of, phase14::map_of_keys, phase14::Mask, phase14::mask_of,
    phase14::rescale, phase14::round_p, phase14::Rows, phase14::softmax, phase14::store_output, phase14::tile_range,
    phase14::TileRange, phase14::uniform;

template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t Q[Br / 64][D / 64][64][64];
  alignas(1024) std::uint16_t K[kStages][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[kStages][D / 64][Bc][64];
  std::uint64_t Q_full, K_full[kStages], V_full[kStages];  // mbarriers: are the bytes there?
  std::uint64_t K_empty[kStages], V_empty[kStages];        // have all warps of the consumers read them?
};

// The stages of K, or of V, are used in turn; a barrier's parity flips each time round.
template <int kCount = kStages>
struct Ring {
  int stage = 0;
  unsigned parity = 0;
  __device__ void next() {
    if (++stage == kCount) stage = 0, parity ^= 1;
  }
};

// Registers per thread: the block is launched with 168 for each; 128 · (2 · 232 + 40) are no more than 384 · 168.
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
// #endregion

// #region setup
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br * 2 + 128, 1)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/,
              float scale_log2, Mask mask, int B, int H) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const bool longest_first = mask.shift < mask.Sk;
  const unsigned heads = B * H, q_tiles = gridDim.x / heads;
  const unsigned head = longest_first ? blockIdx.x % heads : blockIdx.x / q_tiles;
  const unsigned q_tile = longest_first ? q_tiles - 1 - blockIdx.x / heads : blockIdx.x % q_tiles;
  const int b = head / H, h = head % H;

  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.Q_full, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&tiles.K_full[stage], 1), mbarrier_init(&tiles.V_full[stage], 1);
      mbarrier_init(&tiles.K_empty[stage], Br / 16), mbarrier_init(&tiles.V_empty[stage], Br / 16);  // warps
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too

  const int first_row = q_tile * Br;
  const TileRange range = tile_range<Br, Bc>(first_row, mask);
  const int warpgroup = uniform(threadIdx.x / 128), lane = threadIdx.x % 32;
  Ring<> K, V;
  // #endregion

  // #region producer
  if (warpgroup == Br / 64) {
    setmaxnreg_dec<kProducerRegisters>();
    if (threadIdx.x % 128 != 0 || range.seen == 0) return;
    mbarrier_arrive_expect_tx(&tiles.Q_full, sizeof tiles.Q);
    for (int i = 0; i < Br / 64; ++i) load_tile(tiles.Q[i], &Q_map, &tiles.Q_full, first_row + i * 64, h, b);
    for (int tile = range.seen - 1; tile >= 0; --tile, K.next(), V.next()) {
      mbarrier_wait(&tiles.K_empty[K.stage], K.parity ^ 1);  // at first there is nothing to wait for
      mbarrier_arrive_expect_tx(&tiles.K_full[K.stage], sizeof tiles.K[0]);
      load_tile(tiles.K[K.stage], &K_map, &tiles.K_full[K.stage], tile * Bc, h, b);
      mbarrier_wait(&tiles.V_empty[V.stage], V.parity ^ 1);
      mbarrier_arrive_expect_tx(&tiles.V_full[V.stage], sizeof tiles.V[0]);
      load_tile(tiles.V[V.stage], &V_map, &tiles.V_full[V.stage], tile * Bc, h, b);
    }
    return;
  }
  // #endregion

  // #region consumer
  setmaxnreg_inc<kConsumerRegisters>();
  const int row = first_row + warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
  const float c = factor_of(scale_log2), sign = scale_log2 < 0 ? -1.0f : 1.0f;
  const int masked = scale_log2 < 0 ? 0 : range.full;  // from this tile on
  const int seen[2] = {mask.visible(row) - lane % 4 * 2, mask.visible(row + 8) - lane % 4 * 2};
  Rows rows;
  float o[D / 2] = {};
  if (range.seen > 0) mbarrier_wait(&tiles.Q_full, 0);
  for (int tile = range.seen - 1; tile >= 0; --tile, K.next(), V.next()) {
    trace_mark("tile", tile);
    float s[Bc / 2], alpha[2];
    mbarrier_wait(&tiles.K_full[K.stage], K.parity);
    begin_scores<T>(s, tiles.Q[warpgroup], tiles.K[K.stage]);
    wgmma_wait<0>(s);
    if (lane == 0) mbarrier_arrive(&tiles.K_empty[K.stage]);
    if (tile >= masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
    softmax(s, rows, alpha, c);
    trace_value("m", row, rows.m[0]), trace_value("alpha", row, alpha[0]);
    trace_value("m", row + 8, rows.m[1]), trace_value("alpha", row + 8, alpha[1]);
    rescale(o, alpha);
    unsigned p[Bc / 16][4];
    round_p<T, Bc>(p, s);
    mbarrier_wait(&tiles.V_full[V.stage], V.parity);
    begin_output<T>(o, p, tiles.V[V.stage]);
    wgmma_wait<0>(o, p);
    if (lane == 0) mbarrier_arrive(&tiles.V_empty[V.stage]);
  }

  float factor[2];
  finish_rows(rows, factor, LSE ? LSE + head * O.rows : nullptr, row, mask.Sq, c);
  store_output(o, factor, O.head(b, h), row);
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
    kernel<<<grid, Br * 2 + 128, shared_bytes, p.stream>>>(map_of(p.Q, p.B, p.H, 64), map_of_keys(p, p.K, Bc),
                                                           map_of_keys(p, p.V, Bc), p.O, p.LSE, p.scale_log2,
                                                           mask_of(p), p.B, p.H);
  }
};
// #endregion

}  // namespace flash::phase15::inline FLASH_MACHINE
