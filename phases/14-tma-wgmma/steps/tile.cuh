// tile.cuh: asks how TMA lays a tile out, and which thread holds which element of a product of wgmma. The tile's
// elements are their own numbers, 64 · row + column - 2048: whole numbers that fp16 holds exactly.
// Run it: build/default/bin/phase14_notebook
#pragma once
#include "phases/14-tma-wgmma/attention.cuh"

namespace flash::phase14::inline FLASH_MACHINE {

// #region ask
struct TwoTiles {
  alignas(1024) std::uint16_t numbers[1][64][64], identity[1][64][64];  // a panel each
  std::uint64_t full;
};

__global__ void __launch_bounds__(128)
    ask(const __grid_constant__ TensorMap numbers, const __grid_constant__ TensorMap identity,
        std::uint16_t* tile /*[64, 64]*/, float* S /*[128, 32]*/) {
  TwoTiles& tiles = shared<TwoTiles>();
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&tiles.full, sizeof tiles.numbers + sizeof tiles.identity);
    cp_async_bulk_tensor(tiles.numbers, &numbers, &tiles.full, 0, 0);
    cp_async_bulk_tensor(tiles.identity, &identity, &tiles.full, 0, 0);
  }
  mbarrier_wait(&tiles.full, 0);
  for (int i = threadIdx.x; i < 64 * 64; i += 128) tile[i] = tiles.numbers[0][i / 64][i % 64];  // as it lies

  float s[32];
  begin_scores<__half>(s, tiles.numbers, tiles.identity);  // numbers · identity: the numbers again
  wgmma_wait<0>(s);
  for (int i = 0; i < 32; ++i) S[threadIdx.x * 32 + i] = s[i];
}
// #endregion

}  // namespace flash::phase14::inline FLASH_MACHINE
