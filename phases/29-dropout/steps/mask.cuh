// mask.cuh: the mask of dropout, written out, for tests: a warp draws flags for a tile as a warp of attention does, and
// each lane writes those of its own elements. Attention never has the mask in memory. And the generator alone.
// Use: write_mask<RowFlags><<<grid, 32>>>(keeper, mask, H, Sq, Sk);
#pragma once
#include "phases/29-dropout/flags.cuh"

namespace flash::phase29::inline FLASH_MACHINE {

// #region write-mask
// A block, one warp, has 16 rows and 64 keys of head z, or 64 rows and 16 keys where its product is transposed.
template <class Flags>
__global__ void write_mask(Keeper keeper, std::uint8_t* mask /*[B, H, Sq, Sk]*/, int H, int Sq, int Sk) {
  constexpr bool kTransposed = std::is_same_v<Flags, KeyFlags>;
  const int down = blockIdx.y * (kTransposed ? 64 : 16), right = blockIdx.x * (kTransposed ? 16 : 64);
  const int h = blockIdx.z % H, b = blockIdx.z / H;
  unsigned flags[1];
  Flags::template draw<64>(flags, keeper, h, b, kTransposed ? down : down + lane_row(), right);
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int r = 8 * row_of(i) + lane_row(), c = column_of(i) + lane_column();
    const int row = down + (kTransposed ? c : r), key = right + (kTransposed ? r : c);
    if (row < Sq && key < Sk)
      mask[(std::int64_t{blockIdx.z} * Sq + row) * Sk + key] = Flags::one(flags[0], i / 4, row_of(i), i % 2);
  }
}
// #endregion

// #region one-call
__global__ void one_call(uint4 counter, uint2 key, unsigned* words /*[4]*/) {
  unsigned x[4] = {counter.x, counter.y, counter.z, counter.w};
  philox(x, key.x, key.y);
  for (int i = 0; i < 4; ++i) words[i] = x[i];
}
// #endregion

}  // namespace flash::phase29::inline FLASH_MACHINE
