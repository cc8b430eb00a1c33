// 3-naive.cuh: attention as phase 01 computes it, one thread per row: S is written to HBM, P takes its place.
// New since 2-tile.cuh: nothing of CUDA. Every element comes from HBM each time that it is used.
// Run it: build/default/bin/phase05_steps; the next step: 4-tiled.cuh
#pragma once
#include "gpu/kernel.cuh"

namespace flash::phase05::inline FLASH_MACHINE::naive {

// #region attention
constexpr int D = 32;  // head dimension: columns of Q, K, V and O

__global__ void attention(const float* Q /*[N, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/,
                          float* S /*[N, N]*/, float* O /*[N, D]*/, int N, float scale) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= N) return;

  // S = Q K^T · scale, my row of it.
  for (int j = 0; j < N; ++j) {
    float s = 0;
    for (int d = 0; d < D; ++d) s = fmaf(Q[row * D + d], K[j * D + d], s);
    S[row * N + j] = s * scale;
  }

  // The softmax in two passes: the row's maximum, then P = exp(S - m) and its sum l.
  float m = -INFINITY;
  for (int j = 0; j < N; ++j) m = fmaxf(m, S[row * N + j]);
  float l = 0;
  for (int j = 0; j < N; ++j) {
    const float p = expf(S[row * N + j] - m);
    S[row * N + j] = p;
    l += p;
  }

  // O = P V / l.
  for (int d = 0; d < D; ++d) {
    float o = 0;
    for (int j = 0; j < N; ++j) o = fmaf(S[row * N + j], V[j * D + d], o);
    O[row * D + d] = o / l;
  }
}
// #endregion

}  // namespace flash::phase05::inline FLASH_MACHINE::naive
