// lists.cuh: tiles that a block mask hides whole are not loaded: kernels in front write lists of those that are left,
// and the others go by the lists. And a block mask from a predicate, by a kernel.
// Use: with_lists<Variant, D, Br, Bc>(p, p.workspace[1], [&](const DeviceProblem<T>& listed) { … });
#pragma once
#include "phases/28-modifiers/masks.cuh"

namespace flash::inline FLASH_MACHINE {

// #region lists: in which order tiles come
// A list for each tile: of Q its K/V tiles, of K/V its Q tiles as the variant numbers them. Ascending, behind two
// numbers: how many there are, and how many of those come before the mask's first (or last) whole one. An empty list
// has a 0. Heads, or batch entries, that share a block mask share their lists: a stride of 0.
struct TileLists {
  int* data;                        // [heads with lists of their own][tiles][2 + most]
  int tiles, most;                  // lists of a head; numbers of a list
  std::int64_t b_stride, h_stride;  // in heads

  __device__ int* of(int b, int h, int tile) const {
    return data + ((b * b_stride + h * h_stride) * tiles + tile) * (most + 2);
  }
};
// What the kernels in front find. An element of a list of Q tiles is two numbers: the Q tile's, and, where somebody
// asks, its rank: twice how many of its K/V tiles come before this one, 1 more if none comes behind.
struct FoundLists {
  TileLists keys_of_rows, rows_of_keys;
  TileLists ranks;  // no lists: all Q tiles in a row for each K/V tile; without data where nobody asks
};

template <class Base>
struct Skipping : Base {
  static constexpr bool skips = true;
  TileLists keys_of_rows, rows_of_keys;

  // Of a head of Q; of a head of K.
  __device__ const int* list_of_rows(int b, int h, int q_tile) const { return keys_of_rows.of(b, h, q_tile); }
  __device__ const int* list_of_keys(int b, int h, int kv_tile) const { return rows_of_keys.of(b, h, kv_tile); }

  template <class T>
  static Skipping of(const DeviceProblem<T>& p) {
    const auto& found = *static_cast<const FoundLists*>(p.found);
    return {Base::of(p), found.keys_of_rows, found.rows_of_keys};
  }
};
// #endregion

// #region seen: a tile of pairs
template <int Br, int Bc, class Variant>
__device__ bool any_seen(const Variant& band, const PairArray<std::uint8_t>& blocks, int b, int h, int q_tile,
                         int kv_tile) {
  using Int = decltype(band.Sq);
  const Int first_row = Int{q_tile} * Br, last_row = min(first_row + Br, band.Sq) - 1;
  const Int first_key = Int{kv_tile} * Bc, last_key = min(first_key + Bc, band.Sk) - 1;
  if (band.end(last_row) <= first_key) return false;
  if (!blocks.data) return true;
  for (Int i = first_row / mask_block; i <= last_row / mask_block; ++i)
    for (Int j = first_key / mask_block; j <= last_key / mask_block; ++j)
      if (blocks.head(b, h)[i * blocks.stride + j] != 0) return true;
  return false;
}
// A warp appends the numbers first … first + 31 of those lanes that have seen theirs. Returns the lane's place.
__device__ inline int append(int& count, bool seen) {
  const unsigned all = __ballot_sync(0xffffffffu, seen);
  const int at = count + __popc(all & ((1u << threadIdx.x % 32) - 1));
  count += __popc(all);
  return at;
}
// #endregion

// #region list-keys: of each Q tile, by a warp
template <int Br, int Bc, class Variant>
__global__ void __launch_bounds__(32)
    list_keys(Variant band, PairArray<std::uint8_t> blocks, FoundLists to, int own_H) {
  const TileLists& lists = to.keys_of_rows;
  const int q_tile = blockIdx.x % lists.tiles, head = blockIdx.x / lists.tiles, b = head / own_H, h = head % own_H;
  int* const list = lists.data + std::int64_t{blockIdx.x} * (lists.most + 2);
  const auto full = band.end(decltype(band.Sq){q_tile} * Br) / Bc;  // K/V tiles before that are seen whole by the mask
  int count = 0, before = 0;
  for (int first = 0; first < lists.most; first += 32) {
    const int kv_tile = first + static_cast<int>(threadIdx.x);
    const bool seen = kv_tile < lists.most && any_seen<Br, Bc>(band, blocks, b, h, q_tile, kv_tile);
    append(before, seen && kv_tile < full);
    const int at = append(count, seen);
    if (seen) list[2 + at] = kv_tile;
    if (seen && to.ranks.data) to.ranks.of(b, h, kv_tile)[q_tile] = 2 * at;
  }
  __syncwarp();  // the list is there
  if (threadIdx.x > 0) return;
  list[0] = count, list[1] = before;
  if (count == 0) list[2] = 0;
  if (count > 0 && to.ranks.data) to.ranks.of(b, h, list[1 + count])[q_tile] += 1;
}
// #endregion

// #region list-rows: of each K/V tile, by a warp
template <int Br, int Bc, class Variant>
__global__ void __launch_bounds__(32)
    list_rows(Variant band, PairArray<std::uint8_t> blocks, FoundLists to, int own_H, int own_Hk) {
  using Int = decltype(band.Sq);
  const TileLists& lists = to.rows_of_keys;
  const int kv_tile = blockIdx.x % lists.tiles, head = blockIdx.x / lists.tiles, b = head / own_Hk, hk = head % own_Hk;
  int* const list = lists.data + std::int64_t{blockIdx.x} * (lists.most + 2);
  const int tiles = static_cast<int>((band.Sq + Br - 1) / Br), total = tiles * band.group;
  const Int last_key = Int{kv_tile} * Bc + Bc - 1;  // Q tiles from `full` on see all of them
  const Int full = last_key >= band.Sk ? Int{tiles} : max(last_key - band.right + Br - 1, Int{0}) / Br;
  int count = 0, before = 0;
  for (int first = 0; first < total; first += 32) {
    const int number = first + static_cast<int>(threadIdx.x), q_tile = band.tile_of(number);
    const int h = own_H == 1 ? 0 : hk * band.group + band.member_of(number);
    const bool seen = number < total && any_seen<Br, Bc>(band, blocks, b, h, q_tile, kv_tile);
    append(before, seen && q_tile < full);
    const int at = append(count, seen);
    if (seen) list[2 + 2 * at] = number;
    if (seen && to.ranks.data) list[3 + 2 * at] = to.ranks.of(b, h, kv_tile)[q_tile];
  }
  if (threadIdx.x == 0) list[0] = count, list[1] = before;
}
// #endregion

// #region with-lists: the host's side
// Finds the lists, and calls launch() with the problem that kernels of earlier phases are launched for. kOfRows: tiles
// of the lists of K/V tiles; kOfKeys: of those of Q tiles, or none. workspace: lists_piece() says how much.
template <class Base, Blocks kOfRows, Blocks kOfKeys = Blocks{0, 0}, class T, class F>
void with_lists(DeviceProblem<T> p, void* workspace, bool ranked, const F& launch) {
  const AnyView& blocks = p.all->blocks;
  const int own_B = blocks.given() ? static_cast<int>(blocks.B()) : 1;
  const int own_H = blocks.given() ? static_cast<int>(blocks.H()) : 1, own_Hk = own_H == 1 ? 1 : p.Hk;
  int* to = static_cast<int*>(workspace);
  const auto tiles = [](std::int64_t length, std::int64_t tile) {
    return static_cast<int>((length + tile - 1) / tile);
  };
  const auto take = [&](int heads, int rows, int most) {
    TileLists lists{to, rows, std::max(most, 1), own_B == 1 ? 0 : heads, own_H == 1 ? 0 : 1};
    to += std::int64_t{own_B} * heads * rows * (lists.most + 2);
    return lists;
  };
  FoundLists found{};
  found.keys_of_rows = take(own_H, tiles(p.Q.rows, kOfRows.Br), tiles(p.K.rows, kOfRows.Bc));
  if constexpr (kOfKeys.Br > 0) {
    const int q_tiles = tiles(p.Q.rows, kOfKeys.Br), kv_tiles = tiles(p.K.rows, kOfKeys.Bc);
    found.rows_of_keys = take(own_Hk, kv_tiles, 2 * q_tiles * (p.H / p.Hk));
    if (ranked) found.ranks = take(own_H, kv_tiles, q_tiles);
  }
  p.found = &found;
  const Base band = Base::of(p);
  const auto of_blocks = PairArray<std::uint8_t>::of(blocks);
  const auto grid = [&](int heads, const TileLists& lists) {
    return static_cast<unsigned>(own_B * heads * lists.tiles);
  };
  if (const unsigned all = grid(own_H, found.keys_of_rows))
    list_keys<kOfRows.Br, kOfRows.Bc><<<all, 32, 0, p.stream>>>(band, of_blocks, found, own_H);
  if constexpr (kOfKeys.Br > 0)
    if (const unsigned all = grid(own_Hk, found.rows_of_keys))
      list_rows<kOfKeys.Br, kOfKeys.Bc><<<all, 32, 0, p.stream>>>(band, of_blocks, found, own_H, own_Hk);
  launch(p);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
