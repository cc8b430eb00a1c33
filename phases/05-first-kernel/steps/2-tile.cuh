// 2-tile.cuh: the transpose of a square matrix: element by element, through shared memory, and without the barrier.
// New since 1-index.cuh: blocks of two dimensions, memory that the threads of a block share, __syncthreads().
// Run it: build/default/bin/phase05_steps; the next step: 3-naive.cuh
#pragma once
#include "gpu/kernel.cuh"

namespace flash::phase05::inline FLASH_MACHINE::tile {

// #region transpose-directly
constexpr int side = 32;  // of a tile; a block has side × side threads, one per element

__global__ void transpose_directly(const float* in /*[n, n]*/, float* out /*[n, n]*/, int n) {
  const int x = blockIdx.x * side + threadIdx.x, y = blockIdx.y * side + threadIdx.y;
  if (x < n && y < n) out[x * n + y] = in[y * n + x];
}
// #endregion

// #region transpose
__global__ void transpose(const float* in /*[n, n]*/, float* out /*[n, n]*/, int n) {
  __shared__ float tile[side][side];

  int x = blockIdx.x * side + threadIdx.x, y = blockIdx.y * side + threadIdx.y;
  if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = in[y * n + x];
  __syncthreads();  // the whole tile is written: each thread reads an element that another one wrote

  x = blockIdx.y * side + threadIdx.x, y = blockIdx.x * side + threadIdx.y;  // the tile's place in the result
  if (x < n && y < n) out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}
// #endregion

// #region without-barrier
__global__ void transpose_without_barrier(const float* in /*[n, n]*/, float* out /*[n, n]*/, int n) {
  __shared__ float tile[side][side];

  int x = blockIdx.x * side + threadIdx.x, y = blockIdx.y * side + threadIdx.y;
  if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = in[y * n + x];
  // here a barrier is missing

  x = blockIdx.y * side + threadIdx.x, y = blockIdx.x * side + threadIdx.y;
  if (x < n && y < n) out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}
// #endregion

}  // namespace flash::phase05::inline FLASH_MACHINE::tile
