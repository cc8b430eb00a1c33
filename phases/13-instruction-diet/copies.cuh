// copies.cuh: a tile on its way from HBM to shared memory: words of phase 13 and of the steps that lead there.
// Use: load_tile<false, kThreads>(tiles.K[0], K, first_key, end); cp_async_commit(); … cp_async_wait<0>();
#pragma once
#include "phases/11-swizzle/fragments.cuh"

namespace flash::phase13::inline FLASH_MACHINE {

// #region load-tile: HBM to shared memory
// Begins to copy HBM -> shared memory, to be waited for: rows first … first + Rows - 1, zeros from row `end` and column
// from.cols on (0 · NaN is NaN). kWhole: the tile ends before `end`. A thread copies one column of pieces of 16 bytes;
// their rows are a power of two apart, so that the swizzle of each is an XOR of the first one's with a constant.
// Where base, stride or D are no multiples of 16 bytes: element by element, at once.
template <bool kWhole, int kThreads, int D, int Rows, class T>
__device__ void load_tile(std::uint16_t (&tile)[Rows][D], Head<const T> from, std::int64_t first, std::int64_t end) {
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from.data);
  if (in_pieces_of_8(from)) {
    constexpr int kRowsAtOnce = kThreads / (D / 8);
    static_assert(kThreads % (D / 8) == 0 && Rows % kRowsAtOnce == 0);
    const int r0 = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8) * 8, at = swizzled(r0, c);
    const int rows = c >= from.cols ? 0 : kWhole ? Rows : static_cast<int>(min(end - first, std::int64_t{Rows}));
    const std::uint16_t* piece = &bits[(first + r0) * from.stride + c];  // not read where it is outside
#pragma unroll
    for (int r = 0; r < Rows; r += kRowsAtOnce, piece += kRowsAtOnce * from.stride)
      cp_async_16(&tile[r0][0] + r * D + swizzled(r, at), piece, (kWhole ? rows > 0 : r0 + r < rows) ? 16 : 0);
    return;
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < Rows * D; i += kThreads) {
    const int r = i / D, c = i % D;
    const bool inside = first + r < end && c < from.cols;
    tile[r][swizzled(r, c)] = inside ? bits[(first + r) * from.stride + c] : std::uint16_t{0};
  }
}
// #endregion

}  // namespace flash::phase13::inline FLASH_MACHINE
