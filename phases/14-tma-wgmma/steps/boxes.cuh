// boxes.cuh: two small kernels around one instruction, TMA's copy of a box: one box, and boxes in two stages. The
// elements are whole numbers of 16 bits, which nobody takes for floats.
// Run it: build/default/bin/phase14_tma
#pragma once
#include "gpu/hopper.cuh"

namespace flash::phase14::inline FLASH_MACHINE {

// #region copy-box: one thread asks for a box, and all wait for its bytes
struct Box {
  alignas(1024) std::uint16_t tile[16][64];
  std::uint64_t full;  // an mbarrier: are the tile's bytes there?
};

// 64 threads. The box of 16 rows and 64 columns that begins at column x of row y, as it lies in shared memory.
__global__ void copy_box(const __grid_constant__ TensorMap map, int x, int y, std::uint16_t* seen /*[16, 64]*/) {
  Box& box = shared<Box>();
  if (threadIdx.x == 0) {
    mbarrier_init(&box.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barrier is there, for all threads and for TMA
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&box.full, sizeof box.tile);
    cp_async_bulk_tensor(box.tile, &map, &box.full, x, y);
  }
  mbarrier_wait(&box.full, 0);  // all threads: the tile is there
  for (int row = 0; row < 16; ++row) seen[row * 64 + threadIdx.x] = box.tile[row][threadIdx.x];
}
// #endregion

// #region two-stages: a box comes while the one before is read
struct Stages {
  alignas(1024) std::uint16_t tile[2][16][64];
  std::uint64_t full[2];
};

// 64 threads. The sum of each column, over tiles of 16 rows. flip: 1; with 0 the parity always stays the same.
__global__ void sum_tiles(const __grid_constant__ TensorMap map, int tiles, unsigned flip, unsigned* sums /*[64]*/) {
  Stages& stages = shared<Stages>();
  const int column = threadIdx.x;
  if (column == 0) {
    for (int stage = 0; stage < 2; ++stage) mbarrier_init(&stages.full[stage], 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  const auto load = [&](int tile) {
    if (column != 0 || tile >= tiles) return;
    mbarrier_arrive_expect_tx(&stages.full[tile % 2], sizeof stages.tile[0]);
    cp_async_bulk_tensor(stages.tile[tile % 2], &map, &stages.full[tile % 2], 0, tile * 16);
  };
  load(0), load(1);
  unsigned sum = 0, parity = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % 2;
    mbarrier_wait(&stages.full[stage], parity);
    for (int row = 0; row < 16; ++row) sum += stages.tile[stage][row][column ^ row % 8 * 8];
    __syncthreads();  // all have read the stage, which may now be filled again
    load(tile + 2);
    if (stage == 1) parity ^= flip;  // both stages were full: what comes next is the next phase of both barriers
  }
  sums[column] = sum;
}
// #endregion

}  // namespace flash::phase14::inline FLASH_MACHINE
