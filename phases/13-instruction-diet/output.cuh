// output.cuh: a warp's rows of O on their way through shared memory to HBM: words of phase 13 and of the steps that
// lead there. First the warp's lanes put their elements into a tile's rows.
// Use: store_rows<16>(tiles.Q, warp_row, O, first_row);
#pragma once
#include "phases/11-swizzle/fragments.cuh"
#include "phases/13-instruction-diet/training.cuh"

namespace flash::phase13::inline FLASH_MACHINE {

// #region store-rows: O, through shared memory
// Rows row … row + kRows - 1 of a tile whose row 0 is row first_row of O. Neighbouring lanes store 16 bytes each of one
// row; where base, stride or D are no multiples of that, element by element.
template <int kRows, int D, int Br, class T>
__device__ void store_rows(const std::uint16_t (&tile)[Br][D], int row, Head<T> O /*[Sq, D]*/, std::int64_t first_row) {
  __syncwarp();  // the rows are complete: four lanes have written to each
  constexpr int kRowsAtOnce = 32 / (D / 8);
  const int lane = threadIdx.x % 32, r0 = row + lane / (D / 8), column = lane % (D / 8) * 8;
  const int rows = column >= O.cols ? 0 : static_cast<int>(min(O.rows - first_row - r0, std::int64_t{kRows}));
  const std::uint16_t* piece = &tile[r0][0];
  std::uint16_t* to = reinterpret_cast<std::uint16_t*>(O.data) + (first_row + r0) * O.stride + column;
  const int at = swizzled(r0, column);
  if (in_pieces_of_8(O)) {
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce, to += kRowsAtOnce * O.stride)
      if (r < rows) store8(to, load8(&piece[r * D + swizzled(r, at)]));
  } else {
#pragma unroll 1
    for (int r = 0; r < rows; r += kRowsAtOnce, to += kRowsAtOnce * O.stride)
      for (int e = 0; e < 8 && column + e < O.cols; ++e) to[e] = piece[r * D + swizzled(r, at) + e];
  }
}
// #endregion

// #region store-output: O, what rounding took from it, or O in fp32
// All pairs of neighbours of a warp's rows, of which a lane holds o, go into its rows of a tile, as kBits makes them.
template <auto kBits, int D, int Br, int kRowTiles>
__device__ void put_rows(const float (&o)[kRowTiles][D / 2], std::uint16_t (&tile)[Br][D], int row) {
#pragma unroll
  for (int i = 0; i < kRowTiles * D / 2; i += 2) {
    const int rt = i / (D / 2), j = i % (D / 2), to = row + 16 * rt + 8 * row_of(j) + lane_row();
    store2(&tile[to][swizzled(to, column_of(j) + lane_column())], kBits(o[rt][j], o[rt][j + 1]));
  }
}
// A warp's rows of O, through a tile whose rows `row` … nobody else reads any more. kKeeps: what else is wanted.
template <bool kKeeps, class T, int D, int Br, int kRowTiles>
__device__ void store_output(const float (&o)[kRowTiles][D / 2], const OutputsOf<T, Head>& out,
                             std::uint16_t (&tile)[Br][D], int row, std::int64_t first_row) {
  if (out.O_wide.data) {
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
      store_wide(o[rt], {1, 1}, out.O_wide, first_row + row + 16 * rt + lane_row());
  } else {
    put_rows<pack<T>>(o, tile, row);
    store_rows<16 * kRowTiles>(tile, row, out.O, first_row);
  }
  if (!kKeeps || !out.O_lo.data) return;
  __syncwarp();  // all lanes have read their last rows of O, which the bits beside it overwrite
  put_rows<low_bits<T>>(o, tile, row);
  store_rows<16 * kRowTiles>(tile, row, out.O_lo, first_row);
}
// #endregion

}  // namespace flash::phase13::inline FLASH_MACHINE
