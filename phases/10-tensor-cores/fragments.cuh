// fragments.cuh: mma's operands out of shared memory, an element or two at a time: phase 10's, and no other's.
// Use: unsigned a[4]; load_a(a, tiles.Q, warp_row(), d); then mma_m16n8k16
#pragma once
#include "phases/interface/device.cuh"

namespace flash::phase10::inline FLASH_MACHINE {

// #region fragments: what mma takes
// Fragments of mma.m16n8k16 (PTX ISA). With g = lane / 4 and t = lane % 4 a lane holds, two elements a register,
//   of A [16,16]: rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8 (and the next one);
//   of B [16,8]:  rows 2t, 2t + 8 (and the next one), column g;
//   of C [16,8]:  rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
// A out of rows of shared memory, B out of rows that are its columns (K: S = QKᵀ), or that are its rows (V).
template <int Rows, int D>
__device__ void load_a(unsigned (&a)[4], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) a[i] = load2(&tile[row + g + i % 2 * 8][column + 2 * t + i / 2 * 8]);
}
template <int Rows, int D>
__device__ void load_b_transposed(unsigned (&b)[2], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 2; ++i) b[i] = load2(&tile[row + g][column + 2 * t + i * 8]);
}
template <int Rows, int D>
__device__ void load_b(unsigned (&b)[2], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 2; ++i) {
    const int k = row + 2 * t + i * 8;
    b[i] = tile[k][column + g] | static_cast<unsigned>(tile[k + 1][column + g]) << 16;
  }
}
// #endregion

}  // namespace flash::phase10::inline FLASH_MACHINE
