// keys.cuh: which K/V tiles a Q tile sees. Phase 07's, with a third number: where the keys end
// that anyone sees. Sizes and offsets have 64 bits.
// Use: const KeyTiles range = key_tiles<Br, Bc>(first_row, band).
#pragma once
#include "phases/interface/device.cuh"
#include "phases/interface/mask.hpp"

namespace flash::inline FLASH_MACHINE {

// #region tile-range
// K/V tiles 0 … full - 1 are seen whole by each row of a Q tile, full … seen - 1 in part, the others by no row; nor are
// the keys from `keys` on.
struct KeyTiles {
  std::int64_t full, seen, keys;
};
template <int Br, int Bc>
__device__ KeyTiles key_tiles(std::int64_t first_row, const Band<std::int64_t>& band) {
  const std::int64_t keys = band.end(min(first_row + Br, band.Sq) - 1);
  return {band.end(first_row) / Bc, (keys + Bc - 1) / Bc, keys};
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
