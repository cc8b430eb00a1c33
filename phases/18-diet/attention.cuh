// Phase 18: less to do, and at better times. New since 17: Q stays in registers; the maximum is one of three integers;
// masked tiles have a loop of their own; and S of the next Q tile is begun before the last PV of this one.
// Run it: ./flash tour 18     Test it: ./flash test 18
#pragma once
#include "phases/17-persistent/attention.cuh"
#include "phases/18-diet/phase.hpp"

namespace flash::phase18::inline FLASH_MACHINE {

// #region tiles
using phase14::begin_output, phase14::exponentials, phase14::factor_of, phase14::finish_rows, phase14::hide,
    phase14::is_extreme, phase14::load_tile, phase14::map_of, phase14::map_of_keys, phase14::Mask, phase14::mask_of,
    phase14::maxima, phase14::rescale, phase14::round_p, phase14::Rows, phase14::subtract, phase14::uniform;
using phase15::kConsumerRegisters, phase15::kProducerRegisters, phase15::Ring;
using phase17::blocks_of, phase17::draw, phase17::Keys, phase17::Schedule, phase17::schedule_of, phase17::store_tile,
    phase17::Work;

// What shared memory Q no longer needs for long is a third stage of K: S runs ahead of PV by one tile and more.
constexpr int kStagesOfK = 3, kStagesOfV = 2;
template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t Q[Br / 64][D / 64][64][64];
  alignas(1024) std::uint16_t K[kStagesOfK][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[kStagesOfV][D / 64][Bc][64];
  alignas(1024) std::uint16_t O[Br / 64][D / 64][64][64];
  std::uint64_t Q_full[Br / 64], Q_empty[Br / 64], K_full[kStagesOfK], K_empty[kStagesOfK], V_full[kStagesOfV];
  std::uint64_t V_empty[kStagesOfV], work_full, work_empty;
  Work work;
};
// #endregion

// #region q-in-registers
// Q as the left operand, 16 columns at a time: as in phase 11, out of a tile that TMA has swizzled.
template <int kPanels>
__device__ void load_q(unsigned (&q)[kPanels * 4][4], const std::uint16_t (&Q)[kPanels][64][64]) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int k = 0; k < kPanels * 4; ++k)
    ldmatrix_x4(q[k], &Q[k / 4][row][swizzled(row, k % 4 * 16 + lane / 16 * 8)]);
}

// Begins S = Q Kᵀ: half the operands of phase 14 are not read from shared memory any more.
template <class T, int kPanels, int Bc>
__device__ void begin_scores(float (&s)[Bc / 2], const unsigned (&q)[kPanels * 4][4],
                             const std::uint16_t (&K)[kPanels][Bc][64]) {
  const MatrixDescriptor k = matrix_descriptor(K);
  wgmma_fence();
#pragma unroll
  for (int d = 0; d < kPanels * 64; d += 16)
    wgmma_m64nNk16<T>(s, q[d / 16], k + (d / 64 * sizeof K[0] + d % 64 * 2), d != 0);
  wgmma_commit();
}
// #endregion

// #region maximum
// Where all maxima are moderate and positive the bits of floats are ordered as integers (a smaller one of either sign
// changes nothing), and there is an instruction for the maximum of three.
template <int kRegisters>
__device__ void integer_maxima(const float (&s)[kRegisters], const Rows& rows, float (&m)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int top[2] = {__float_as_int(rows.m[r]), __float_as_int(s[2 * r])};
#pragma unroll
    for (int i = 2 * r; i < kRegisters; i += 8)
#pragma unroll
      for (int j = 0; j < 2; ++j) top[j] = __vimax3_s32(top[j], __float_as_int(s[i + j]), __float_as_int(s[i + 4 + j]));
    int bits = max(top[0], top[1]);
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, 1));
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, 2));
    m[r] = __int_as_float(bits);
  }
}

// As in phase 14 but for the maxima; and before the exponentials something else may be done.
template <int kRegisters, class F>
__device__ void integer_softmax(float (&s)[kRegisters], Rows& rows, float (&alpha)[2], float c,
                                const F& before_exponentials) {
  float m[2];
  integer_maxima(s, rows, m);
  float base[2] = {c * m[0], c * m[1]};
  if (__any_sync(0xffffffffu, is_extreme(base[0]) || is_extreme(base[1]) || fminf(base[0], base[1]) < 0)) {
    maxima(s, rows, m);
    subtract(s, rows, m);
    base[0] = base[1] = 0;
  }
  before_exponentials();
  exponentials(s, rows, alpha, c, m, base);
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
  constexpr int kConsumers = Br / 64, kWarps = 4 * kConsumers;
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.work_full, 1), mbarrier_init(&tiles.work_empty, kWarps * 32 + 1);  // each lane arrives
    for (auto& full : tiles.Q_full) mbarrier_init(&full, 1);
    for (auto& full : tiles.K_full) mbarrier_init(&full, 1);
    for (auto& full : tiles.V_full) mbarrier_init(&full, 1);
    for (auto& empty : tiles.Q_empty) mbarrier_init(&empty, 4);  // a warpgroup's warps
    for (auto& empty : tiles.K_empty) mbarrier_init(&empty, kWarps);
    for (auto& empty : tiles.V_empty) mbarrier_init(&empty, kWarps);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  const int warpgroup = uniform(threadIdx.x / 128), lane = threadIdx.x % 32;
  Ring<kStagesOfK> K;
  Ring<kStagesOfV> V;
  // #endregion

  // #region producer
  if (warpgroup == kConsumers) {
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
        // Each warpgroup gets its rows by themselves; the last ones, which see the most keys, first.
        for (int i = kConsumers - 1; i >= 0; --i) {
          mbarrier_wait(&tiles.Q_empty[i], parity ^ 1);
          mbarrier_arrive_expect_tx(&tiles.Q_full[i], sizeof tiles.Q[0]);
          load_tile(tiles.Q[i], &Q_map, &tiles.Q_full[i], work.q_tile * Br + i * 64, work.head % H, work.head / H);
        }
      }
    }
    // Another loads K and V, in the order of use.
    if (threadIdx.x % 128 == 0) {
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

  // #region steps
  setmaxnreg_inc<kConsumerRegisters>();
  const int my_row = warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;  // of the Q tile
  const float c = factor_of(scale_log2), sign = scale_log2 < 0 ? -1.0f : 1.0f;
  unsigned q[D / 16][4], p[Bc / 16][4];
  float s[Bc / 2], o[D / 2], alpha[2];
  Rows rows;
  Work work;
  Keys<Br, Bc> keys;
  int masked, seen[2];  // from which tile on; how many keys the lane's rows see, from its first column on
  const auto arrive = [&](std::uint64_t* barrier) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  const auto next_work = [&](unsigned parity) {
    mbarrier_wait(&tiles.work_full, parity);
    work = {uniform(tiles.work.head), uniform(tiles.work.q_tile)};
    mbarrier_arrive(&tiles.work_empty);
    if (work.head < 0) return false;
    keys = Keys<Br, Bc>(work.q_tile * Br, mask);
    masked = scale_log2 < 0 ? 0 : keys.full;
    const int row = work.q_tile * Br + my_row;
    seen[0] = mask.visible(row) - lane % 4 * 2, seen[1] = mask.visible(row + 8) - lane % 4 * 2;
    mbarrier_wait(&tiles.Q_full[warpgroup], parity);
    load_q(q, tiles.Q[warpgroup]);
    return true;
  };
  const auto next_scores = [&] {
    mbarrier_wait(&tiles.K_full[K.stage], K.parity);
    begin_scores<T, D / 64>(s, q, tiles.K[K.stage]);
  };
  const auto next_output = [&] {
    mbarrier_wait(&tiles.V_full[V.stage], V.parity);
    begin_output<T>(o, p, tiles.V[V.stage]);
  };
  const auto release_K = [&] { arrive(&tiles.K_empty[K.stage]), K.next(); };
  const auto release_V = [&] { arrive(&tiles.V_empty[V.stage]), V.next(); };
  const auto probabilities = [&](auto may_be_masked, int tile) {
    if (may_be_masked && tile >= masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
    integer_softmax(s, rows, alpha, c, [] {});
    const int row = work.q_tile * Br + my_row;
    trace_value("m", row, rows.m[0]), trace_value("alpha", row, alpha[0]);
    trace_value("m", row + 8, rows.m[1]), trace_value("alpha", row + 8, alpha[1]);
  };
  // Of a Q tile's first K/V tile, whose S is there: nothing has been summed yet.
  const auto first_probabilities = [&] {
    release_K();
    fence_proxy_async();  // this lane's reads of Q come before TMA's next writes;
    __syncwarp();         // and so do those of all lanes
    arrive(&tiles.Q_empty[warpgroup]);
    rows = Rows();
    probabilities(std::true_type(), keys.tiles - 1);
  };
  const auto finish = [&](Work done, Rows& its_rows) {
    float factor[2];
    const int first_row = done.q_tile * Br;
    finish_rows(its_rows, factor, LSE ? LSE + std::int64_t{done.head} * mask.Sq : nullptr, first_row + my_row, mask.Sq,
                c);
    store_tile<T>(o, factor, tiles.O[warpgroup], &O_map, first_row + warpgroup * 64, done.head % H, done.head / H,
                  warpgroup);
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = 0;
  };
  const auto step = [&](auto may_be_masked, int tile) {
    trace_mark("tile", tile);
    next_scores();  // S of this tile
    next_output();  // PV of the tile before
    wgmma_wait<1>(s);
    release_K();
    probabilities(may_be_masked, tile);
    wgmma_wait<0>(o, p, q);
    release_V();
    rescale(o, alpha);
    round_p<T, Bc>(p, s);
  };
  // #endregion

  // #region consumer
#pragma unroll
  for (int i = 0; i < D / 2; ++i) o[i] = 0;
  unsigned parity = 0;
  if (next_work(parity)) {
    next_scores();
    wgmma_wait<0>(s, q);
    first_probabilities();
    round_p<T, Bc>(p, s);
    for (;;) {
      int tile = keys.tiles - 2;
#pragma unroll 1
      for (; tile >= masked; --tile) step(std::true_type(), tile);
#pragma unroll 1
      for (; tile >= 0; --tile) step(std::false_type(), tile);
      const Work done = work;
      Rows its_rows = rows;
      if (!next_work(parity ^= 1)) {
        next_output();
        wgmma_wait<0>(o, p);
        finish(done, its_rows);
        break;
      }
      next_scores();  // S of the next Q tile
      next_output();  // the last PV of this one
      wgmma_wait<1>(s);
      first_probabilities();
      wgmma_wait<0>(o, p, q);
      release_V();
      finish(done, its_rows);
      round_p<T, Bc>(p, s);
    }
  }
  if (threadIdx.x % 128 == 0) cp_async_bulk_wait<0>();  // shared memory must live until O has left it
  // #endregion
}

// #region launch
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

}  // namespace flash::phase18::inline FLASH_MACHINE
