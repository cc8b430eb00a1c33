// keys.cuh: which keys a row, and which K/V tiles a Q tile sees. Phase 07's, with a third number: where the keys end
// that anyone sees. Sizes and offsets have 64 bits.
// Use: const KeyTiles range = key_tiles<Br, Bc>(first_row, Sq, Sk, shift).
#pragma once
#include "phases/interface/device.cuh"

namespace flash::inline FLASH_MACHINE {

// #region visible
// Row i sees keys 0 … visible(i) - 1. Top-left: shift = 0. Bottom-right: shift = Sk - Sq. No mask: shift = Sk.
__device__ inline std::int64_t visible(std::int64_t i, std::int64_t shift, std::int64_t Sk) {
  return max(std::int64_t{0}, min(i + 1 + shift, Sk));
}
// #endregion

// #region tile-range
// K/V tiles 0 … full - 1 are seen whole by each row of a Q tile, full … seen - 1 in part, the others by no row; nor are
// the keys from `keys` on.
struct KeyTiles {
  std::int64_t full, seen, keys;
};
template <int Br, int Bc>
__device__ KeyTiles key_tiles(std::int64_t first_row, std::int64_t Sq, std::int64_t Sk, std::int64_t shift) {
  const std::int64_t keys = visible(min(first_row + Br, Sq) - 1, shift, Sk);
  return {visible(first_row, shift, Sk) / Bc, (keys + Bc - 1) / Bc, keys};
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
