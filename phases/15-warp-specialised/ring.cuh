// ring.cuh: K's tiles, or V's, pass through a few stages of shared memory in turn: words of phases 15 to 19. One thread
// fills a stage when its readers have left it; they wait until its bytes are there. Two barriers for each stage say so.
// Use: ring.fill(tiles, at, &map, first, h, b), at.next();  readers: ring.wait_full(at); … ring.release(at), at.next();
#pragma once
#include "phases/14-tma-wgmma/tiles.cuh"
#include "phases/interface/variant.cuh"

namespace flash::inline FLASH_MACHINE {

// #region ring: stages with their barriers, and where a thread is
// Which stage a thread comes to next, and in which round: a barrier's parity flips each time round.
template <int kStages>
struct Cursor {
  int stage = 0;
  unsigned parity = 0;
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// A tile of the rows from `at` on; a box on its way out, or to the L2 cache.
template <int kPanels, int kRows>
__device__ void load_tile(std::uint16_t (&tile)[kPanels][kRows][64], const TensorMap* map, std::uint64_t* full,
                          Place at) {
  load_tile(tile, map, full, at.row, at.h, at.b);
}
template <int kRows>
__device__ void store_box(const TensorMap* map, const void* box, int column, Place at) {
  cp_async_bulk_tensor_store(map, box, column, at.row, at.h, at.b);
}
template <int kRows>
__device__ void prefetch_box(const TensorMap* map, int column, Place at) {
  cp_async_bulk_prefetch_tensor(map, column, at.row, at.h, at.b);
}

template <int kStages>
struct Ring {
  std::uint64_t full[kStages];   // mbarrier: the filling thread arrives, and the bytes; readers wait: the tile is there
  std::uint64_t empty[kStages];  // a lane of each reading warp arrives; the filling thread waits: nobody reads any more

  __device__ void init(int warps) {  // warps: all that read
    for (auto& barrier : full) mbarrier_init(&barrier, 1);
    for (auto& barrier : empty) mbarrier_init(&barrier, warps);
  }
  // In the first round there is nothing to wait for: of a new barrier the phase before, of parity 1, counts as over.
  __device__ void wait_empty(const Cursor<kStages>& at) { mbarrier_wait(&empty[at.stage], at.parity ^ 1); }
  __device__ void wait_full(const Cursor<kStages>& at) { mbarrier_wait(&full[at.stage], at.parity); }
  // The warp has read the tile: wgmma_wait says so for all of its lanes, and one of them speaks.
  __device__ void release(const Cursor<kStages>& at) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&empty[at.stage]);
  }
  // Rows first … of head (b, h) into a stage, as soon as it is empty.
  template <int kPanels, int kRows>
  __device__ void fill(std::uint16_t (&tiles)[kStages][kPanels][kRows][64], const Cursor<kStages>& at,
                       const TensorMap* map, int first, int h, int b) {
    wait_empty(at);
    mbarrier_arrive_expect_tx(&full[at.stage], sizeof tiles[0]);
    load_tile(tiles[at.stage], map, &full[at.stage], first, h, b);
  }
  template <class Tile>
  __device__ void fill(Tile& tiles, const Cursor<kStages>& at, const TensorMap* map, Place place) {
    fill(tiles, at, map, place.row, place.h, place.b);
  }
  template <class Tile, class PlaceOfTile>
  __device__ void fill(Tile& tiles, const Cursor<kStages>& at, const TensorMap* map, const PlaceOfTile& place) {
    wait_empty(at);
    mbarrier_arrive_expect_tx(&full[at.stage], sizeof tiles[0]);
    load_tile(tiles[at.stage], map, &full[at.stage], place);
  }
};
// #endregion

// #region load-keys: the order of use, from phase 16 on
// One thread loads tiles count - 1 … 0 of K and of V as they are used: S runs one tile ahead of PV. Tile 0 begins with
// the key at `first`. before(tile) is called before V of a tile is loaded, and K of the next one.
template <class Tiles, class CursorOfK, class CursorOfV, class PlaceOfTile, class F>
__device__ void load_keys(Tiles& tiles, CursorOfK& K, CursorOfV& V, const TensorMap* K_map, const TensorMap* V_map,
                          int count, const PlaceOfTile& first, const F& before) {
  constexpr int Bc = sizeof tiles.K[0][0] / sizeof tiles.K[0][0][0];
  tiles.K_ring.fill(tiles.K, K, K_map, first + (count - 1) * Bc), K.next();
  for (int tile = count - 1; tile >= 0; --tile) {
    before(tile);
    if (tile > 0) tiles.K_ring.fill(tiles.K, K, K_map, first + (tile - 1) * Bc), K.next();
    tiles.V_ring.fill(tiles.V, V, V_map, first + tile * Bc), V.next();
  }
}
template <class Tiles, class CursorOfK, class CursorOfV, class F>
__device__ void load_keys(Tiles& tiles, CursorOfK& K, CursorOfV& V, const TensorMap* K_map, const TensorMap* V_map,
                          int count, int first, int h, int b, const F& before) {
  load_keys(tiles, K, V, K_map, V_map, count, Place{first, h, b}, before);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
