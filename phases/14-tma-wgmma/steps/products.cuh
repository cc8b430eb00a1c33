// products.cuh: three small kernels around one instruction, wgmma: what a descriptor looks like; a product of two tiles
// of shared memory; a product whose left operand comes from registers. Tiles are 64 x 64, of fp16.
// Run it: build/default/bin/phase14_wgmma
#pragma once
#include "phases/14-tma-wgmma/tiles.cuh"

namespace flash::phase14::inline FLASH_MACHINE {

// #region describe: descriptors of two tiles, as 64 bits each
struct TwoTiles {
  alignas(1024) std::uint16_t K[2][64][64], V[2][64][64];  // two panels each: 64 rows of 128 columns
};

__global__ void describe(unsigned* bits /*[4, 2]*/) {
  const TwoTiles& tiles = shared<TwoTiles>();
  const MatrixDescriptor k = matrix_descriptor(tiles.K), v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  const MatrixDescriptor all[] = {k, k + 32, v, v + 16 * 128};  // the next 16 columns of K, the next 16 rows of V
  for (int i = 0; i < 4; ++i) bits[2 * i] = all[i].low, bits[2 * i + 1] = all[i].high;
}
// #endregion

// #region first-product: S = A Bᵀ, of 16 columns of both at a time
struct Operands {
  alignas(1024) std::uint16_t A[64][64], B[64][64];
  std::uint64_t full;
};

// 128 threads, one warpgroup. kSteps instructions, each of which multiplies 16 columns further on.
template <int kSteps>
__global__ void __launch_bounds__(128)
    multiply(const __grid_constant__ TensorMap A_map, const __grid_constant__ TensorMap B_map, float* S /*[128, 32]*/) {
  Operands& tiles = shared<Operands>();
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&tiles.full, sizeof tiles.A + sizeof tiles.B);
    cp_async_bulk_tensor(tiles.A, &A_map, &tiles.full, 0, 0);
    cp_async_bulk_tensor(tiles.B, &B_map, &tiles.full, 0, 0);
  }
  mbarrier_wait(&tiles.full, 0);
  const MatrixDescriptor a = matrix_descriptor(tiles.A), b = matrix_descriptor(tiles.B);
  float s[32];  // the thread's part of S, 64 x 64
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 16 * kSteps; k += 16) wgmma_m64nNk16<__half>(s, a + k * 2, b + k * 2, k != 0);
  wgmma_commit();
  wgmma_wait<0>(s);
  for (int i = 0; i < 32; ++i) S[threadIdx.x * 32 + i] = s[i];
}
// #endregion

// #region second-product: O = P V, P from registers; and what becomes of it when a word is left out
enum class Word { none, fence, commit, wait };  // which one is left out

template <Major kMajor, Word kLeftOut>
__global__ void __launch_bounds__(128)
    multiply_again(const float* P /*[128, 32]*/, const __grid_constant__ TensorMap V_map, float* O /*[128, 32]*/) {
  Operands& tiles = shared<Operands>();
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&tiles.full, sizeof tiles.B);
    cp_async_bulk_tensor(tiles.B, &V_map, &tiles.full, 0, 0);
  }
  float s[32], o[32] = {};
  for (int i = 0; i < 32; ++i) s[i] = P[threadIdx.x * 32 + i];  // as the first product left it
  unsigned p[4][4];
  round_p<__half>(p, s);  // to 16 bits, two in a register, in the same order
  mbarrier_wait(&tiles.full, 0);
  const MatrixDescriptor v = matrix_descriptor(tiles.B);
  constexpr unsigned kNext = kMajor == Major::MN ? 16 * 128 : 32;  // 16 rows further on, or 16 columns
  if constexpr (kLeftOut != Word::fence) wgmma_fence();
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) wgmma_m64nNk16<__half, kMajor>(o, p[k], v + k * kNext, true);
  if constexpr (kLeftOut != Word::commit) wgmma_commit();
  wgmma_wait<kLeftOut == Word::wait ? 1 : 0>(o, p);
  for (int i = 0; i < 32; ++i) O[threadIdx.x * 32 + i] = o[i];
}
// #endregion

}  // namespace flash::phase14::inline FLASH_MACHINE
