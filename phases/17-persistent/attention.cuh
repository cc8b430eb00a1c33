// Phase 17: one block per multiprocessor, which stays. New since 16: blocks draw the number of their next Q tile, whose
// rows are loaded while this tile's are multiplied; O goes out through shared memory, stored by TMA, while they go on.
// Run it: ./flash tour 17     Test it: ./flash test 17
#pragma once
#include "phases/16-overlap/attention.cuh"
#include "phases/17-persistent/phase.hpp"

namespace flash::phase17::inline FLASH_MACHINE {

// #region tiles
using phase14::begin_output, phase14::begin_scores, phase14::factor_of, phase14::finish_rows, phase14::hide,
    phase14::kStages, phase14::load_tile, phase14::map_of, phase14::map_of_keys, phase14::Mask, phase14::mask_of,
    phase14::rescale, phase14::round_p, phase14::Rows, phase14::softmax, phase14::tile_range, phase14::TileRange,
    phase14::uniform;
using phase15::kConsumerRegisters, phase15::kProducerRegisters, phase15::Ring;

// What the block does next: a Q tile of a head; head < 0: nothing more.
struct Work {
  int head, q_tile;
};

template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t Q[Br / 64][D / 64][64][64];
  alignas(1024) std::uint16_t K[kStages][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[kStages][D / 64][Bc][64];
  alignas(1024) std::uint16_t O[Br / 64][D / 64][64][64];  // on its way out
  std::uint64_t Q_full, K_full[kStages], V_full[kStages], Q_empty, K_empty[kStages], V_empty[kStages];  // mbarriers
  std::uint64_t work_full, work_empty;
  Work work;
};
// #endregion

// #region schedule
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

// Draws a number. A block's first is its own, and the counter gives out those from gridDim.x on. Each block draws one
// too many, and whoever draws the last of all leaves the counter as it was, 0, for the next launch.
__device__ inline Work draw(const Schedule& schedule, unsigned* counter, bool first) {
  const unsigned tile = first ? blockIdx.x : gridDim.x + atomicAdd(counter, 1u);
  if (tile < schedule.tiles()) return schedule.at(tile);
  if (tile == schedule.tiles() + gridDim.x - 1) *counter = 0;
  return {-1, 0};
}

// K/V tiles of Br rows. Rows that see no key have a tile too, of zeros, from beyond the tensor's end.
template <int Br, int Bc>
struct Keys {
  int tiles, full, first;  // first: key of tile 0

  Keys() = default;
  __device__ Keys(int first_row, const Mask& mask) {
    const TileRange range = tile_range<Br, Bc>(first_row, mask);
    tiles = max(range.seen, 1), full = range.full, first = range.seen > 0 ? 0 : 0x7fff0000;
  }
  __device__ int at(int tile) const { return first + tile * Bc; }
};
// #endregion

// #region output
// O of a warpgroup, 64 rows: registers -> shared memory (stmatrix: four 8 x 8 matrices of a warp at a time) -> HBM.
template <class T, int kPanels>
__device__ void store_tile(const float (&o)[kPanels * 32], const float (&factor)[2],
                           std::uint16_t (&staging)[kPanels][64][64], const TensorMap* O_map, int first_row, int h,
                           int b, int warpgroup) {
  const bool leader = threadIdx.x % 128 == 0;
  if (leader) cp_async_bulk_wait_read<0>();
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
  if (leader) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      cp_async_bulk_tensor_store(O_map, staging[panel], 64 * panel, first_row, h, b);
    cp_async_bulk_commit();
  }
}
// #endregion

// #region setup
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br * 2 + 128, 1)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map,
              float* LSE /*[B, H, Sq] or null*/, unsigned* counter /*0*/, Schedule schedule, float scale_log2,
              Mask mask, int H) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  constexpr int kWarps = Br / 16;  // of the consumers
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.Q_full, 1), mbarrier_init(&tiles.Q_empty, kWarps);
    mbarrier_init(&tiles.work_full, 1), mbarrier_init(&tiles.work_empty, kWarps * 32 + 1);  // each lane arrives
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&tiles.K_full[stage], 1), mbarrier_init(&tiles.V_full[stage], 1);
      mbarrier_init(&tiles.K_empty[stage], kWarps), mbarrier_init(&tiles.V_empty[stage], kWarps);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  const int warpgroup = uniform(threadIdx.x / 128), lane = threadIdx.x % 32;
  // #endregion

  // #region producer
  if (warpgroup == Br / 64) {
    setmaxnreg_dec<kProducerRegisters>();
    // One thread draws the numbers and loads Q.
    if (threadIdx.x % 128 == 32) {
      bool first = true;
      for (unsigned parity = 0;; parity ^= 1, first = false) {
        mbarrier_wait(&tiles.work_empty, parity ^ 1);
        const Work work = draw(schedule, counter, first);
        tiles.work = work;
        mbarrier_arrive(&tiles.work_full);
        if (work.head < 0) return;
        mbarrier_wait(&tiles.Q_empty, parity ^ 1);
        mbarrier_arrive_expect_tx(&tiles.Q_full, sizeof tiles.Q);
        for (int i = 0; i < Br / 64; ++i)
          load_tile(tiles.Q[i], &Q_map, &tiles.Q_full, work.q_tile * Br + i * 64, work.head % H, work.head / H);
      }
    }
    // Another loads K and V, in the order of use.
    if (threadIdx.x % 128 == 0) {
      Ring<> K, V;
      for (unsigned parity = 0;; parity ^= 1) {
        mbarrier_wait(&tiles.work_full, parity);
        const Work work = tiles.work;
        if (work.head < 0) return;
        const int b = work.head / H, h = work.head % H;
        const Keys<Br, Bc> keys(work.q_tile * Br, mask);
        const auto load_K = [&](int tile) {
          mbarrier_wait(&tiles.K_empty[K.stage], K.parity ^ 1);
          mbarrier_arrive_expect_tx(&tiles.K_full[K.stage], sizeof tiles.K[0]);
          load_tile(tiles.K[K.stage], &K_map, &tiles.K_full[K.stage], keys.at(tile), h, b);
          K.next();
        };
        const auto load_V = [&](int tile) {
          mbarrier_wait(&tiles.V_empty[V.stage], V.parity ^ 1);
          mbarrier_arrive_expect_tx(&tiles.V_full[V.stage], sizeof tiles.V[0]);
          load_tile(tiles.V[V.stage], &V_map, &tiles.V_full[V.stage], keys.at(tile), h, b);
          V.next();
        };
        load_K(keys.tiles - 1);
        for (int tile = keys.tiles - 1; tile >= 0; --tile) {
          if (tile == min(2, keys.tiles - 1)) mbarrier_arrive(&tiles.work_empty);  // time to draw the next
          if (tile > 0) load_K(tile - 1);
          load_V(tile);
        }
      }
    }
    return;
  }
  // #endregion

  // #region consumer
  setmaxnreg_inc<kConsumerRegisters>();
  const int my_row = warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;  // of the Q tile
  const float c = factor_of(scale_log2), sign = scale_log2 < 0 ? -1.0f : 1.0f;
  Ring<> K, V;
  for (unsigned parity = 0;; parity ^= 1) {
    mbarrier_wait(&tiles.work_full, parity);
    const Work work{uniform(tiles.work.head), uniform(tiles.work.q_tile)};
    mbarrier_arrive(&tiles.work_empty);
    if (work.head < 0) break;
    const int first_row = work.q_tile * Br, row = first_row + my_row;
    const Keys<Br, Bc> keys(first_row, mask);

    const int masked = scale_log2 < 0 ? 0 : keys.full;  // from this tile on
    const int seen[2] = {mask.visible(row) - lane % 4 * 2, mask.visible(row + 8) - lane % 4 * 2};
    Rows rows;
    float o[D / 2] = {}, s[Bc / 2], alpha[2];
    unsigned p[Bc / 16][4];
    const auto next_scores = [&] {
      mbarrier_wait(&tiles.K_full[K.stage], K.parity);
      begin_scores<T>(s, tiles.Q[warpgroup], tiles.K[K.stage]);
    };
    const auto next_output = [&] {
      mbarrier_wait(&tiles.V_full[V.stage], V.parity);
      begin_output<T>(o, p, tiles.V[V.stage]);
    };
    const auto release = [&](std::uint64_t* empty, Ring<>& ring) {
      if (lane == 0) mbarrier_arrive(&empty[ring.stage]);
      ring.next();
    };
    const auto probabilities = [&](int tile) {
      if (tile >= masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
      softmax(s, rows, alpha, c);
      trace_value("m", row, rows.m[0]), trace_value("alpha", row, alpha[0]);
      trace_value("m", row + 8, rows.m[1]), trace_value("alpha", row + 8, alpha[1]);
    };

    mbarrier_wait(&tiles.Q_full, parity);
    next_scores();
    wgmma_wait<0>(s);
    release(tiles.K_empty, K);
    if (keys.tiles == 1 && lane == 0) mbarrier_arrive(&tiles.Q_empty);
    probabilities(keys.tiles - 1);
    round_p<T, Bc>(p, s);
    for (int tile = keys.tiles - 2; tile >= 0; --tile) {
      trace_mark("tile", tile);
      next_scores();     // S of this tile
      next_output();     // PV of the tile before
      wgmma_wait<1>(s);  // all but the last: S is there
      release(tiles.K_empty, K);
      if (tile == 0 && lane == 0) mbarrier_arrive(&tiles.Q_empty);  // the last product with Q
      probabilities(tile);
      wgmma_wait<0>(o, p);
      release(tiles.V_empty, V);
      rescale(o, alpha);
      round_p<T, Bc>(p, s);
    }
    next_output();
    wgmma_wait<0>(o, p);
    release(tiles.V_empty, V);

    float factor[2];
    finish_rows(rows, factor, LSE ? LSE + std::int64_t{work.head} * mask.Sq : nullptr, row, mask.Sq, c);
    store_tile<T>(o, factor, tiles.O[warpgroup], &O_map, first_row + warpgroup * 64, work.head % H, work.head / H,
                  warpgroup);
  }
  if (threadIdx.x % 128 == 0) cp_async_bulk_wait<0>();  // shared memory must live until O has left it
  // #endregion
}

// #region launch
// Heads whose K and V fill so much of the L2 cache that they stay in it while all their Q tiles are done.
inline unsigned section_of(std::int64_t heads, std::int64_t Sk, int D) {
  const std::int64_t bytes = Sk * D * 4, cache = Sk <= 1024 ? 8 << 20 : 32 << 20;
  const std::int64_t most = std::max<std::int64_t>(cache / std::max<std::int64_t>(bytes, 1), 1);
  const std::int64_t sections = (heads + most - 1) / most;
  return static_cast<unsigned>((heads + sections - 1) / sections);
}

template <int D, int Br, class T>
Schedule schedule_of(const DeviceProblem<T>& p) {
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  const bool masked = p.shift < p.K.rows;
  return {static_cast<unsigned>(heads), static_cast<unsigned>((p.Q.rows + Br - 1) / Br),
          masked ? section_of(heads, p.K.rows, D) : 0};
}
// One block per multiprocessor, but none without a Q tile.
inline unsigned blocks_of(const Schedule& schedule) {
  return std::min(schedule.heads * schedule.q_tiles, static_cast<unsigned>(multiprocessors()));
}

struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;
  static constexpr bool counts = true;  // DeviceProblem::counter

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = attention<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const Schedule schedule = schedule_of<D, Br>(p);
    kernel<<<blocks_of(schedule), Br * 2 + 128, shared_bytes, p.stream>>>(
        map_of(p.Q, p.B, p.H, 64), map_of_keys(p, p.K, Bc), map_of_keys(p, p.V, Bc), map_of(p.O, p.B, p.H, 64), p.LSE,
        p.counter, schedule, p.scale_log2, mask_of(p), p.H);
  }
};
// #endregion

}  // namespace flash::phase17::inline FLASH_MACHINE
