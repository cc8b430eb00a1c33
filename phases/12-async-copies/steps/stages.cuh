// stages.cuh: the loop of phase 12 with two stages or more, and with nothing in it but copies and a sum: y is the sum
// of the tiles of x. A thread reads what another has copied, so it needs the barrier as attention does.
// Run it: build/default/bin/phase12_notebook
#pragma once
#include "phases/interface/device.cuh"

namespace flash::phase12::inline FLASH_MACHINE {

// #region stages
constexpr int kThreads = 128, kTile = 4 * kThreads;  // 16 bytes a thread

template <int kStages>
struct Stages {
  alignas(16) float tile[kStages][kTile];  // tile j is in stage j % kStages
};

template <int kStages>
__global__ void __launch_bounds__(kThreads)
    add_tiles(const float* x /*[tiles, kTile]*/, float* y /*[kTile]*/, int tiles) {
  Stages<kStages>& stages = shared<Stages<kStages>>();
  const int i = 4 * threadIdx.x;
  const auto begin_copy = [&](int tile) {
    if (tile < tiles) cp_async_16(&stages.tile[tile % kStages][i], &x[tile * kTile + i]);
    cp_async_commit();  // a group for each tile; behind the last tile an empty one, since waits count groups
  };
  float sum[4] = {};
  for (int tile = 0; tile < kStages - 1; ++tile) begin_copy(tile);
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<kStages - 2>();  // of the groups begun, all but the last kStages - 2: this tile's is there
    __syncthreads();               // all threads' copies are; and all have read the stage that the next one fills
    begin_copy(tile + kStages - 1);
    trace_mark("add", tile);
    for (int k = 0; k < 4; ++k) sum[k] += stages.tile[tile % kStages][kTile - 1 - (i + k)];
  }
  for (int k = 0; k < 4; ++k) y[i + k] = sum[k];
}
// #endregion

}  // namespace flash::phase12::inline FLASH_MACHINE
