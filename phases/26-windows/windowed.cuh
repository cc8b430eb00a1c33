// windowed.cuh: the variant of sliding windows: a row has keys that it does not see on its left, too. Whose K/V tiles a
// window cuts and where, what kernels hide of them, and which Q tiles see a K/V tile, for the kernels of all phases.
// Use: phase19::Attention::launch<T, D, Br, Bc, Windowed<Grouped<int>>>(p);
#pragma once
#include "phases/10-tensor-cores/keys.cuh"
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/interface/variant.cuh"

namespace flash::inline FLASH_MACHINE {

// #region windowed: K and V of a head, from the first key that some row sees
// TMA knows nothing of the keys before that one (seen_keys), and counts from there.
template <class Base>
struct Windowed : Base {
  static constexpr bool windows = true;
  using Int = decltype(Base::left);

  __device__ Int front() const { return this->begin(0); }  // so many keys at the front no row sees
  __device__ PlaceOf<Int> keys(int head, int H, Int j) const { return Base::keys(head, H, j - front()); }
  __device__ PlaceOf<Int> keys_at(Int j, int h, int b) const { return Base::keys_at(j - front(), h, b); }
  __device__ KeyRange<Int> keys_for(Int first, Int last) const { return this->seen(first, last); }

  template <class T>
  static Windowed of(const DeviceProblem<T>& p) {
    return {Base::of(p)};
  }
};
// #endregion

// #region window-tiles: K/V tiles of a Q tile, in phase 13
// Tiles first … seen - 1 have keys that some row sees. Those before `cut` are masked since the last row does not see
// them whole, those from `full` on since the first row does not. Of the tiles nobody reads but the keys `keys`.
struct WindowTiles {
  std::int64_t full, seen;
  KeyRange<std::int64_t> keys;
  std::int64_t first, cut;
};
template <int Br, int Bc, class Variant>
requires(Variant::windows) __device__ WindowTiles key_tiles(std::int64_t first_row, const Variant& band) {
  const std::int64_t last_row = min(first_row + Br, band.Sq) - 1;
  const KeyRange<std::int64_t> keys = band.seen(first_row, last_row);
  const std::int64_t first = keys.begin / Bc, seen = (keys.end + Bc - 1) / Bc;
  const auto between = [&](std::int64_t tile) { return max(min(tile, seen), first); };
  return {between(band.end(first_row) / Bc), seen, keys, first, between((band.begin(last_row) + Bc - 1) / Bc)};
}
// #endregion

// #region window-keys: the same in phases 18 and 19, whose tiles are counted from the first that is seen
template <int Br, int Bc, class Variant>
struct Keys;  // phase 17
template <int Br, int Bc, class Variant>
requires(Variant::windows) struct Keys<Br, Bc, Variant> {
  static constexpr int nowhere = 0x7fff0000;
  int tiles, full, first;  // first: key of tile 0
  int cut;                 // tiles before that one are masked, too

  Keys() = default;
  __device__ Keys(int first_row, const Variant& band) {
    const int last_row = min(first_row + Br, band.Sq) - 1;
    const KeyRange<int> keys = band.seen(first_row, last_row);
    first = keys.begin / Bc * Bc;
    tiles = (keys.end - first + Bc - 1) / Bc;
    full = max(band.end(first_row) - first, 0) / Bc, cut = (max(band.begin(last_row) - first, 0) + Bc - 1) / Bc;
    if (keys.size() == 0) tiles = 1, full = cut = 0, first = nowhere;
  }
  // Of all tiles of a Q tile a warpgroup takes part in one at least: in the one that is nearest to its rows, of which
  // they may see nothing.
  template <int kAll>
  __device__ void take_part(const Keys<kAll, Bc, Variant>& all, int first_row, const Variant& band) {
    if (first == nowhere) first = all.first + (band.end(first_row) > 0 ? (all.tiles - 1) * Bc : 0);
  }
};
// #endregion

// #region hide-left
// -inf for what the lane's rows do not see on the left, by selection, as hide() does on the right. Two rows, 8 apart,
// for phases 18 and 19; in phase 13 one or two tiles of 16 rows.
template <int N, class Variant>
__device__ __forceinline__ void hide_left(float (&s)[N], const Variant& band, int row, int first_key) {
  const int first = first_key + lane_column(), from[2] = {band.begin(row) - first, band.begin(row + 8) - first};
#pragma unroll
  for (int i = 0; i < N; ++i) s[i] = column_of(i) < from[row_of(i)] ? -INFINITY : s[i];
}
template <int kRowTiles, int N, class Variant>
__device__ __forceinline__ void hide_left(float (&s)[kRowTiles][N], const Variant& band, std::int64_t row,
                                          std::int64_t first_key) {
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const std::int64_t hidden = min(max(band.begin(row + 8 * i) - first_key, std::int64_t{0}), std::int64_t{2 * N});
    const int from = static_cast<int>(hidden) - lane_column();
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (row_of(j) == i % 2) s[i / 2][j] = column_of(j) < from ? -INFINITY : s[i / 2][j];
  }
}
// #endregion

// #region hide-queries: in the backward pass, where rows are keys and columns queries
// P = 0 but for the `width` queries from the first on that sees a key, by selection: `from`, as hide_queries takes it.
// A query before that one is a large number without a sign.
template <int N>
__device__ __forceinline__ void hide_queries(float (&p)[N], const int (&from)[2], int width) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    p[i] = static_cast<unsigned>(column_of(i) - from[row_of(i)]) < static_cast<unsigned>(width) ? p[i] : 0.0f;
}
// In phase 20: 0 for the queries behind the last one that sees a key, of the lane's keys from `key` on, 8 apart.
template <int kRowTiles, int N, class Variant>
__device__ __forceinline__ void hide_later_queries(float (&p)[kRowTiles][N], const Variant& band, std::int64_t key,
                                                   std::int64_t first_row) {
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const std::int64_t seeing = min(max(key + 8 * i + band.left + 1 - first_row, std::int64_t{0}), std::int64_t{2 * N});
    const int end = static_cast<int>(seeing) - lane_column();
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (row_of(j) == i % 2) p[i / 2][j] = column_of(j) >= end ? 0.0f : p[i / 2][j];
  }
}
// And where rows are queries: 0 for the keys on the left of what the lane's two rows see.
template <int N, class Variant>
__device__ __forceinline__ void hide_left_to_0(float (&s)[N], const Variant& band, std::int64_t row,
                                               std::int64_t first_key) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int64_t hidden = min(max(band.begin(row + 8 * r) - first_key, std::int64_t{0}), std::int64_t{2 * N});
    const int from = static_cast<int>(hidden) - lane_column();
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (row_of(j) == r) s[j] = column_of(j) < from ? 0.0f : s[j];
  }
}
// #endregion

// #region window-queries: Q tiles of a K/V tile
// One past the last Q tile with a row that sees a key of the tile; 0 where none does.
template <class Variant>
__device__ int end_of_queries(const Variant& band, std::int64_t first_key, int Br, int Bc) {
  const std::int64_t last_key = min(first_key + Bc, std::int64_t{band.Sk}) - 1;
  if (first_key >= band.Sk || first_key - band.right >= band.Sq) return 0;
  return static_cast<int>(max(min(last_key + band.left, std::int64_t{band.Sq} - 1) + Br, std::int64_t{0}) / Br);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
