// 9-unrolled.cuh: every loop over s and o is unrolled, so that the compiler keeps both arrays in registers.
// New since 8-exp2.cuh: loops of constant length, hence a mask; P in shared memory; __launch_bounds__.
// Run it: build/default/bin/phase05_steps; the next step: ../attention.cuh
#pragma once
#include "gpu/kernel.cuh"

namespace flash::phase05::inline FLASH_MACHINE::unrolled {

constexpr int D = 32;            // head dimension: columns of Q, K, V and O
constexpr int Br = 64, Bc = 32;  // rows of a Q tile, which are the threads of a block; rows of a K/V tile
constexpr int pitch = D + 4;     // floats from one row of a tile to the next: four banks on, and 16 bytes

// Four neighbours in one access; p is a multiple of 16 bytes.
__device__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}

// HBM -> shared memory: rows first … first + rows - 1 of a matrix; zeros beyond its end. All threads of the block copy
// together, and neighbouring threads copy neighbouring elements.
__device__ void load_tile(float (*tile)[pitch] /*[rows]*/, int rows, const float* from /*[N, D]*/, int first, int N) {
  for (int i = threadIdx.x; i < rows * D; i += Br) {
    const int r = i / D, c = i % D;
    tile[r][c] = first + r < N ? from[(first + r) * D + c] : 0.0f;
  }
}

__global__ void __launch_bounds__(Br)
    attention(const float* Q /*[N, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/, float* O /*[N, D]*/,
              int N, float scale_log2 /*scale · log2 e*/) {
  __shared__ alignas(16) float Q_tile[Br][pitch];
  __shared__ alignas(16) float K_tile[Bc][pitch], V_tile[Bc][pitch];
  __shared__ float P_tile[Bc][Br];                           // column t is thread t's own: no barrier
  const int row = threadIdx.x, first_row = blockIdx.x * Br;  // my row of the Q tile; the tile's first row
  load_tile(Q_tile, Br, Q, first_row, N);

  float m = -INFINITY, l = 0, o[D] = {};  // the state of online softmax

  for (int first_key = 0; first_key < N; first_key += Bc) {
    load_tile(K_tile, Bc, K, first_key, N);
    load_tile(V_tile, Bc, V, first_key, N);
    __syncthreads();  // the tiles are complete: each was filled by all threads
    const int keys = min(N - first_key, Bc);

    float s[Bc] = {};
#pragma unroll 1
    for (int d = 0; d < D; d += 4) {
      const float4 q = load4(&Q_tile[row][d]);
#pragma unroll
      for (int j = 0; j < Bc; ++j) {
        const float4 k = load4(&K_tile[j][d]);
        s[j] = fmaf(q.x, k.x, s[j]);
        s[j] = fmaf(q.y, k.y, s[j]);
        s[j] = fmaf(q.z, k.z, s[j]);
        s[j] = fmaf(q.w, k.w, s[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < Bc; ++j) s[j] = j < keys ? s[j] * scale_log2 : -INFINITY;  // no such key: exp2 gives 0

    float m_new = m;
#pragma unroll
    for (int j = 0; j < Bc; ++j) m_new = fmaxf(m_new, s[j]);
    const float alpha = exp2f(m - m_new);  // the old state's weight from now on; exp2(-inf) = 0 in the first tile
    float sum = 0;
#pragma unroll
    for (int j = 0; j < Bc; ++j) {
      const float p = exp2f(s[j] - m_new);
      sum += p;
      P_tile[j][row] = p;
    }
#pragma unroll
    for (int d = 0; d < D; ++d) o[d] *= alpha;
    l = fmaf(l, alpha, sum);
    m = m_new;

#pragma unroll 1
    for (int j = 0; j < keys; ++j) {
      const float p = P_tile[j][row];
#pragma unroll
      for (int d = 0; d < D; d += 4) {
        const float4 v = load4(&V_tile[j][d]);
        o[d] = fmaf(p, v.x, o[d]);
        o[d + 1] = fmaf(p, v.y, o[d + 1]);
        o[d + 2] = fmaf(p, v.z, o[d + 2]);
        o[d + 3] = fmaf(p, v.w, o[d + 3]);
      }
    }
    __syncthreads();  // all threads have read K and V: the next round may overwrite them
  }

  if (first_row + row >= N) return;
#pragma unroll
  for (int d = 0; d < D; ++d) O[(first_row + row) * D + d] = o[d] / l;
}

}  // namespace flash::phase05::inline FLASH_MACHINE::unrolled
