// 5-padded.cuh: a spare column in each row of the tiles, so that the rows of Q no longer begin in one bank.
// New since 4-tiled.cuh: one number.
// Run it: build/default/bin/phase05_steps; the next step: 6-reuse.cuh
#pragma once
#include "gpu/kernel.cuh"

namespace flash::phase05::inline FLASH_MACHINE::padded {

constexpr int D = 32;            // head dimension: columns of Q, K, V and O
constexpr int Br = 64, Bc = 32;  // rows of a Q tile, which are the threads of a block; rows of a K/V tile
constexpr int pitch = D + 1;     // floats from one row of a tile to the next: rows begin in different banks

// HBM -> shared memory: rows first … first + rows - 1 of a matrix; zeros beyond its end. All threads of the block copy
// together, and neighbouring threads copy neighbouring elements.
__device__ void load_tile(float (*tile)[pitch] /*[rows]*/, int rows, const float* from /*[N, D]*/, int first, int N) {
  for (int i = threadIdx.x; i < rows * D; i += Br) {
    const int r = i / D, c = i % D;
    tile[r][c] = first + r < N ? from[(first + r) * D + c] : 0.0f;
  }
}

__global__ void attention(const float* Q /*[N, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/,
                          float* O /*[N, D]*/, int N, float scale) {
  __shared__ float Q_tile[Br][pitch], K_tile[Bc][pitch], V_tile[Bc][pitch];
  const int row = threadIdx.x, first_row = blockIdx.x * Br;  // my row of the Q tile; the tile's first row
  load_tile(Q_tile, Br, Q, first_row, N);

  float m = -INFINITY, l = 0, o[D] = {};  // the state of online softmax

  for (int first_key = 0; first_key < N; first_key += Bc) {
    load_tile(K_tile, Bc, K, first_key, N);
    load_tile(V_tile, Bc, V, first_key, N);
    __syncthreads();  // the tiles are complete: each was filled by all threads
    const int keys = min(N - first_key, Bc);

    float s[Bc] = {};
    for (int j = 0; j < keys; ++j)
      for (int d = 0; d < D; ++d) s[j] = fmaf(Q_tile[row][d], K_tile[j][d], s[j]);
    for (int j = 0; j < keys; ++j) s[j] *= scale;

    float m_new = m;
    for (int j = 0; j < keys; ++j) m_new = fmaxf(m_new, s[j]);
    const float alpha = expf(m - m_new);  // the old state's weight from now on; exp(-inf) = 0 in the first tile
    float sum = 0;
    for (int j = 0; j < keys; ++j) {
      s[j] = expf(s[j] - m_new);  // P
      sum += s[j];
    }
    for (int d = 0; d < D; ++d) o[d] *= alpha;
    l = fmaf(l, alpha, sum);
    m = m_new;

    for (int j = 0; j < keys; ++j)
      for (int d = 0; d < D; ++d) o[d] = fmaf(s[j], V_tile[j][d], o[d]);
    __syncthreads();  // all threads have read K and V: the next round may overwrite them
  }

  if (first_row + row >= N) return;
  for (int d = 0; d < D; ++d) O[(first_row + row) * D + d] = o[d] / l;
}

}  // namespace flash::phase05::inline FLASH_MACHINE::padded
