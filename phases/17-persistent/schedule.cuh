// schedule.cuh: a block that stays has one Q tile after another: words of phases 17 to 19. What is to be done and in
// which order, how the number of the next Q tile comes to all threads, which keys it sees, and how its O leaves.
// Use: while (consumer.next_work()) … with tiles.mail; schedule_of<D, Br>(p) on the host.
#pragma once
#include "phases/15-warp-specialised/ring.cuh"

namespace flash::inline FLASH_MACHINE {

// #region schedule: who does what, in which order
// What is to be done, in the order in which blocks draw it. Without a mask: head by head, so that blocks at work share
// K and V in the L2 cache. With one: heads in sections whose K and V it holds, and of all heads of a section the
// longest Q tiles first, so that short ones fill the gaps in the end.
struct Schedule {
  unsigned heads, q_tiles, section;  // section: heads, 0 without a mask

  __device__ unsigned tiles() const { return heads * q_tiles; }
  __device__ Work at(unsigned tile) const {
    if (section == 0) return {static_cast<int>(tile / q_tiles), static_cast<int>(tile % q_tiles)};
    const unsigned first = tile / (section * q_tiles) * section, rank = tile - first * q_tiles;
    const unsigned width = min(section, heads - first);
    return {static_cast<int>(first + rank % width), static_cast<int>(q_tiles - 1 - rank / width)};
  }
};

// Draws a number; head < 0: nothing more. A block's first is its own, and the counter gives out those from gridDim.x
// on. Each block draws one too many, and whoever draws the last of all leaves the counter as it was, 0, for the next
// launch.
template <class Schedule>
__device__ inline Work draw(const Schedule& schedule, unsigned* counter, bool first) {
  const unsigned tile = first ? blockIdx.x : gridDim.x + atomicAdd(counter, 1u);
  if (tile < schedule.tiles()) return schedule.at(tile);
  if (tile == schedule.tiles() + gridDim.x - 1) *counter = 0;
  return {-1, 0};
}

// What a variant's blocks draw from: the schedule, or the tiles of sequences of their own lengths (phase 27).
template <class Variant>
__device__ __forceinline__ decltype(auto) schedule_of(const Variant& band, const Schedule& schedule) {
  if constexpr (Variant::lengths)
    return band.template row_tiles_of<Work>(schedule.heads);
  else
    return (schedule);
}
// of_sequence() for whole warps: the same in all lanes, and the compiler knows it.
template <class Variant>
__device__ __forceinline__ decltype(auto) of_sequence_of_warp(const Variant& band, int head, int H) {
  if constexpr (Variant::lengths) {
    Variant its = band.of(head, H);
    its.left = uniform(its.left), its.right = uniform(its.right), its.Sq = uniform(its.Sq), its.Sk = uniform(its.Sk);
    return its;
  } else {
    return (band);
  }
}

// What was drawn, on its way from the thread that draws to the other threads of the block.
struct Mail {
  std::uint64_t full;  // mbarrier: the drawing thread arrives; the others wait: `work` is there
  std::uint64_t
      empty;  // they arrive, each by itself since each has read it, the loading thread late; the drawing waits
  Work work;

  __device__ void init(int threads) { mbarrier_init(&full, 1), mbarrier_init(&empty, threads); }
  __device__ void post(Work drawn) {
    work = drawn;
    mbarrier_arrive(&full);
  }
  // By all lanes of the consumers: the same in all of them, and the compiler knows it.
  __device__ Work read(unsigned parity) {
    mbarrier_wait(&full, parity);
    const Work read{uniform(work.head), uniform(work.q_tile)};
    mbarrier_arrive(&empty);
    return read;
  }
};
// #endregion

// #region keys: the K/V tiles of a Q tile, and the thread that loads them
// K/V tiles of Br rows. Rows that see no key have a tile too, of zeros, from beyond the tensor's end: no tensor has as
// many rows as 0x7fff0000, and a tile's number of rows can be added to it in 32 bits.
template <int Br, int Bc, class Variant = Plain>
struct Keys {
  int tiles, full, first;        // first: key of tile 0
  static constexpr int cut = 0;  // tiles before that one are masked, too: there are some with a window (phase 26)

  Keys() = default;
  __device__ Keys(int first_row, const Band<int>& band) {
    const TileRange range = tile_range<Br, Bc>(first_row, band);
    tiles = max(range.seen, 1), full = range.full, first = range.seen > 0 ? 0 : 0x7fff0000;
  }
};

// One thread loads K and V of one Q tile after another. The next number may be drawn when it comes to the third tile
// from the end, or to the first of fewer: a number that is drawn early binds a Q tile to this block, while another may
// be free for it sooner; the time of two tiles is enough to load Q.
template <int Br, int Bc, class Tiles, class CursorOfK, class CursorOfV, class Variant>
__device__ void load_keys_of_all(Tiles& tiles, CursorOfK K, CursorOfV V, const TensorMap* K_map, const TensorMap* V_map,
                                 const Variant& band, int H) {
  for (unsigned parity = 0;; parity ^= 1) {
    mbarrier_wait(&tiles.mail.full, parity);
    const Work work = tiles.mail.work;
    if (work.head < 0) return;
    const Keys<Br, Bc, Variant> keys(work.q_tile * Br, of_sequence(band, work.head, H));
    const auto at = band.keys(work.head, H, keys.first);
    load_keys(tiles, K, V, K_map, V_map, keys.tiles, at, [&](int tile) {
      if (tile == min(2, keys.tiles - 1)) mbarrier_arrive(&tiles.mail.empty);
    });
  }
}
template <int Br, int Bc, class Tiles, class CursorOfK, class CursorOfV>
__device__ void load_keys_of_all(Tiles& tiles, CursorOfK K, CursorOfV V, const TensorMap* K_map, const TensorMap* V_map,
                                 const Band<int>& band, int H) {
  load_keys_of_all<Br, Bc>(tiles, K, V, K_map, V_map, Plain{band}, H);
}
// #endregion

// #region output: O leaves through shared memory
// O of a warpgroup, 64 rows: registers -> shared memory (stmatrix: four 8 x 8 matrices of a warp at a time) -> HBM.
// bar_sync's barrier 0 is that of __syncthreads, and each warpgroup has one of the next.
template <class T, int kPanels, class PlaceOfTile>
__device__ void store_tile(const float (&o)[kPanels * 32], const float (&factor)[2],
                           std::uint16_t (&staging)[kPanels][64][64], const TensorMap* O_map, const PlaceOfTile& at,
                           int warpgroup) {
  const bool stores = threadIdx.x % 128 == 0;  // one thread of the warpgroup
  if (stores) cp_async_bulk_wait_read<0>();
  bar_sync(1 + warpgroup, 128);  // the store before has read the staging rows
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int d = 0; d < kPanels * 64; d += 16) {
    unsigned packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float left = o[d / 2 + 2 * i] * factor[i % 2], right = o[d / 2 + 2 * i + 1] * factor[i % 2];
      packed[i] = pack<T>(left, right);
    }
    stmatrix_x4(&staging[d / 64][row][swizzled(row, d % 64 + lane / 16 * 8)], packed);
  }
  fence_proxy_async();           // TMA is to see what stmatrix wrote
  bar_sync(1 + warpgroup, 128);  // of all four warps
  if (stores) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) store_box<64>(O_map, staging[panel], 64 * panel, at);
    cp_async_bulk_commit();
  }
}
template <class T, int kPanels>
__device__ void store_tile(const float (&o)[kPanels * 32], const float (&factor)[2],
                           std::uint16_t (&staging)[kPanels][64][64], const TensorMap* O_map, int first_row, int h,
                           int b, int warpgroup) {
  store_tile<T>(o, factor, staging, O_map, Place{first_row, h, b}, warpgroup);
}
// The same thread waits in the end: shared memory must live until O has left it.
__device__ inline void wait_for_stores() {
  if (threadIdx.x % 128 == 0) cp_async_bulk_wait<0>();
}
// #endregion

// #region grid: as many blocks as multiprocessors, and the sections
// Heads whose K and V (two tensors of 2 bytes an element) fill so much of the L2 cache that they stay in it while all
// their Q tiles are done: 32 MB of an H200's 50. With at most 1024 keys a quarter of that was measured to be faster
// (tests/bench/ablations/17-wide-sections.patch).
inline unsigned section_of(std::int64_t heads, std::int64_t Sk, int D) {
  const std::int64_t bytes = Sk * D * 4, cache = Sk <= 1024 ? 8 << 20 : 32 << 20;
  const std::int64_t most = std::max<std::int64_t>(cache / std::max<std::int64_t>(bytes, 1), 1);
  const std::int64_t sections = (heads + most - 1) / most;
  return static_cast<unsigned>((heads + sections - 1) / sections);
}

// With a window what must stay in the cache is less: the keys that a Q tile sees.
template <int D, int Br, class T>
Schedule schedule_of(const DeviceProblem<T>& p) {
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  const bool masked = p.band.cuts_right();
  const auto group = static_cast<unsigned>(p.H / p.Hk);  // heads that share K and V
  const std::int64_t keys = p.band.cuts_left() ? std::min(p.K.rows, p.band.left + p.band.right + Br) : p.K.rows;
  return {static_cast<unsigned>(heads), static_cast<unsigned>((p.Q.rows + Br - 1) / Br),
          masked ? group * section_of(heads / group, keys, D) : 0};
}
// One block per multiprocessor, but none without a Q tile.
inline unsigned blocks_of(const Schedule& schedule) {
  return std::min(schedule.heads * schedule.q_tiles, static_cast<unsigned>(multiprocessors()));
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
