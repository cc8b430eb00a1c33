// fragments.cuh: where an element of a tile lies in shared memory, and how ldmatrix loads mma's operands from there.
// Elements of 16 bits, as bits; rows of D elements, whose pieces of 16 bytes have changed places.
// Use: load_a(a, tiles.Q, row, column), then mma_m16n8k16.
#pragma once
#include "phases/interface/device.cuh"

namespace flash::inline FLASH_MACHINE {

// #region swizzled
// 8 rows in one place of a tile begin in the same bank where rows are 128 bytes or a multiple. So piece c of row r (8
// elements, 16 bytes, 4 banks) lies where piece c ^ (r % 8) would be: the 8 rows take 8 different groups of 4 banks.
__device__ inline int swizzled(int row, int column) {
  return column ^ row % 8 * 8;
}
// #endregion

// #region load-a
// Fragments of mma.m16n8k16 (PTX ISA). With g = lane / 4 and t = lane % 4 a lane holds, two elements a register,
//   of A [16,16]: rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8 (and the next one);
//   of B [16,8]:  rows 2t, 2t + 8 (and the next one), column g.
// ldmatrix hands out 8 x 8 matrices so that they are these registers; each lane says where one row of one of them is:
// A, 16 x 16: upper left, lower left, upper right, lower right.
template <int Rows, int D>
__device__ void load_a(unsigned (&a)[4], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int lane = threadIdx.x % 32, r = row + lane % 16;
  ldmatrix_x4(a, &tile[r][swizzled(r, column + lane / 16 * 8)]);
}
// #endregion
// #region load-b
// Two B of 16 x 8, side by side, out of rows that are their columns (K: S = QKᵀ), or that are their rows (V).
template <int Rows, int D>
__device__ void load_b_transposed(unsigned (&b)[4], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int lane = threadIdx.x % 32, r = row + lane / 16 * 8 + lane % 8;
  ldmatrix_x4(b, &tile[r][swizzled(r, column + lane / 8 % 2 * 8)]);
}
template <int Rows, int D>
__device__ void load_b(unsigned (&b)[4], const std::uint16_t (&tile)[Rows][D], int row, int column) {
  const int lane = threadIdx.x % 32, r = row + lane % 16;
  ldmatrix_x4_trans(b, &tile[r][swizzled(r, column + lane / 16 * 8)]);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
