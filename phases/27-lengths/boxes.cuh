// boxes.cuh: TMA's part of phase 27: a box ends where its sequence does. The tensor map has two axes more (cut_map_of
// of phases/14-tma-wgmma/tiles.cuh); the shorter a box is the further on it begins in the first one.
// Use: the words of ring.cuh for a place of lengths.cuh: load_tile(tile, &map, &full, band.rows_at(0, h, n));
#pragma once
#include "phases/14-tma-wgmma/tiles.cuh"
#include "phases/15-warp-specialised/ring.cuh"
#include "phases/27-lengths/lengths.cuh"

namespace flash::inline FLASH_MACHINE {

// #region boxes: of a place with an end
using CutPlace = CutPlaceOf<int>;

// How many of a box's rows there are. Where there is none the box begins where the sequences' rows end.
template <int kRows>
__device__ int rows_of_box(const CutPlace& at) {
  return max(min(at.left, kRows), 0);
}
template <int kPanels, int kRows>
__device__ void load_tile(std::uint16_t (&tile)[kPanels][kRows][64], const TensorMap* map, std::uint64_t* full,
                          const CutPlace& at) {
  const int rows = rows_of_box<kRows>(at);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    cp_async_bulk_tensor(tile[panel], map, full, 64 * panel, cut_rows - rows, at.row + rows, at.h, cut_rows);
}
template <int kRows>
__device__ void store_box(const TensorMap* map, const void* box, int column, const CutPlace& at) {
  const int rows = rows_of_box<kRows>(at);
  cp_async_bulk_tensor_store(map, box, column, cut_rows - rows, at.row + rows, at.h, cut_rows);
}
template <int kRows>
__device__ void prefetch_box(const TensorMap* map, int column, const CutPlace& at) {
  const int rows = rows_of_box<kRows>(at);
  cp_async_bulk_prefetch_tensor(map, column, cut_rows - rows, at.row + rows, at.h, cut_rows);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
