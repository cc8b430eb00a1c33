// grid.hpp: the three grids of phase 06, and how many heads the blocks read at once, as arithmetic.
// Assumed: blocks start in the order of their linear index, x fastest. CUDA promises no order; what a cache makes of it
// was not measured. Use: heads_in_flight(Grid::Two, B, H, q_tiles, 132).size()
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <set>

namespace flash::phase06 {

// #region grids
enum class Grid {
  One,    // (Q tile), heads looped inside the block
  Two,    // (Q tile, head): phase 06
  Three,  // (batch, head, Q tile)
};
// #endregion

// #region extents
// Blocks along x, y, z. Heads beyond 65,535, CUDA's limit for y, continue in z.
inline std::array<unsigned, 3> extents_of(Grid grid, std::int64_t B, std::int64_t H, std::int64_t q_tiles) {
  const auto extent = [](std::int64_t n) { return static_cast<unsigned>(n); };
  if (grid == Grid::One) return {extent(q_tiles), 1, 1};
  if (grid == Grid::Three) return {extent(B), extent(H), extent(q_tiles)};
  return {extent(q_tiles), extent(std::min<std::int64_t>(B * H, 65535)), extent((B * H + 65534) / 65535)};
}
// #endregion

// #region heads-in-flight
// The heads whose K and V the first `blocks` blocks read: 2 · Sk · D elements for each. Head h of batch entry b is
// number b · H + h.
inline std::set<std::int64_t> heads_in_flight(Grid grid, std::int64_t B, std::int64_t H, std::int64_t q_tiles,
                                              std::int64_t blocks) {
  std::set<std::int64_t> heads;
  for (std::int64_t n = 0; n < std::min(blocks, B * H * q_tiles); ++n)
    heads.insert(grid == Grid::One ? 0 : grid == Grid::Two ? n / q_tiles : n % B * H + n / B % H);
  return heads;  // One: all blocks walk the same head
}
// #endregion

}  // namespace flash::phase06
