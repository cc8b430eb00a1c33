// fragments.cuh: phase 11's fragments by addresses that cost little: four pointers for all fragments of a tile.
// ldmatrix wants from each lane where its row of an 8 x 8 matrix begins; registers are what is short here.
// Use: const Fragments<D> k_rows(&tiles, K, b_row(), b_column()); ldmatrix_x4(k, k_rows.at(n * 8, d)).
#pragma once
#include "phases/11-swizzle/fragments.cuh"

namespace flash::phase13::inline FLASH_MACHINE {

// #region fragments
// Where a lane's row is in the first fragment of A and of V, and of K (whose rows are B's columns), as in phase 11.
__device__ inline int a_row() {
  return threadIdx.x % 16;
}
__device__ inline int a_column() {
  return threadIdx.x % 32 / 16 * 8;
}
__device__ inline int b_row() {
  return threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8;
}
__device__ inline int b_column() {
  return threadIdx.x / 8 % 2 * 8;
}

// Where it is in all fragments of a tile: 16 columns further on is an XOR of two bits of the address, which four
// pointers know; 8 rows or 64 columns further on is a constant. The XOR is one of the distance from `shared`, which the
// compiler makes anew for each tile: registers are what is short here.
template <int D>
struct Fragments {
  const unsigned char* column[4];

  template <int Rows>
  __device__ Fragments(const void* shared, const std::uint16_t (&tile)[Rows][D], int row, int first_column) {
    const auto* start = static_cast<const unsigned char*>(shared);
    const auto* first = reinterpret_cast<const unsigned char*>(&tile[0][0] + row * D + swizzled(row, first_column));
#pragma unroll
    for (int i = 0; i < 4; ++i) column[i] = start + (static_cast<int>(first - start) ^ i * 32);
  }
  // `down`: a multiple of 8; `right`: a multiple of 16.
  __device__ const void* at(int down, int right) const {
    return column[right / 16 % 4] + (down * D + right / 64 * 64) * 2;
  }
};
// #endregion

}  // namespace flash::phase13::inline FLASH_MACHINE
