// 1-index.cuh: y = a · x, one thread per element; and the same with threads whose elements lie apart.
// The first kernel of the staircase: what a kernel is, how a thread finds its element, what its warp asks of memory.
// Run it: build/default/bin/phase05_steps; the next step: 2-tile.cuh
#pragma once
#include "gpu/kernel.cuh"

namespace flash::phase05::inline FLASH_MACHINE::index {

// #region scale
__global__ void scale(float a, const float* x /*[n]*/, float* y /*[n]*/, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;  // my element
  if (i < n) y[i] = a * x[i];                           // the last block has threads beyond the end
}
// #endregion

// #region scale-apart
// Neighbouring threads take elements that lie n / 32 apart. Needs n to be a multiple of 32 and of the block's size.
__global__ void scale_apart(float a, const float* x /*[n]*/, float* y /*[n]*/, int n) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  const int i = t % 32 * (n / 32) + t / 32;
  y[i] = a * x[i];
}
// #endregion

}  // namespace flash::phase05::inline FLASH_MACHINE::index
