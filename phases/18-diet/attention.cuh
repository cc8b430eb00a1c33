// Phase 18: less to do, and at better times. New since 17: Q stays in registers; the maximum is one of three integers;
// masked tiles have a loop of their own; and S of the next Q tile is begun before the last PV of this one.
// Run it: ./flash tour 18     Test it: ./flash test 18
#pragma once
#include "phases/13-instruction-diet/training.cuh"  // Outputs, sum_rounded, finish_kept
#include "phases/14-tma-wgmma/softmax.cuh"          // Rows, finish_rows
#include "phases/14-tma-wgmma/tiles.cuh"            // load_tile, begin_output
#include "phases/15-warp-specialised/ring.cuh"      // Ring, Cursor
#include "phases/17-persistent/schedule.cuh"        // Schedule, draw, Mail, Keys, store_tile
#include "phases/18-diet/maximum.cuh"               // integer_softmax
#include "phases/18-diet/phase.hpp"

namespace flash::phase18::inline FLASH_MACHINE {

// #region tiles: shared memory of a block, and its barriers
// What shared memory Q no longer needs for long is a third stage of K: S runs ahead of PV by one tile and more.
constexpr int kStagesOfK = 3, kStagesOfV = 2;
template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t Q[Br / 64][1][D / 64][64][64];  // of each warpgroup
  alignas(1024) std::uint16_t K[kStagesOfK][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[kStagesOfV][D / 64][Bc][64];
  alignas(1024) std::uint16_t O[Br / 64][D / 64][64][64];  // on its way out
  // barrier        who arrives                       how many       who waits                for what
  // Q_ring.full    the drawing thread                1, and bytes   consumers, each Q tile   Q is there
  // Q_ring.empty   a lane of each consumer's warp    4, of its own  the drawing thread       nobody reads it any more
  // K_ring.full    the loading thread                1, and bytes   consumers, before S      the stage's K is there
  // K_ring.empty   a lane of each consumer's warp    Br / 16        the loading thread       nobody reads it any more
  // V_ring         as K_ring, but before PV
  // mail.full      the drawing thread                1              all others               the next number is there
  // mail.empty     consumers, the loading thread     Br * 2 + 1     the drawing thread       all have read it
  Ring<1> Q_ring[Br / 64];  // one for each warpgroup
  Ring<kStagesOfK> K_ring;
  Ring<kStagesOfV> V_ring;
  Mail mail;
};

// Registers per thread: the block is launched with 168 for each; 128 · (2 · 232 + 40) are no more than 384 · 168.
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
// #endregion

// #region q-in-registers: Q as the left operand
// Q as the left operand, 16 columns at a time: as in phase 11, out of a tile that TMA has swizzled.
template <int kPanels>
__device__ void load_q(unsigned (&q)[kPanels * 4][4], const std::uint16_t (&Q)[kPanels][64][64]) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int k = 0; k < kPanels * 4; ++k) ldmatrix_x4(q[k], &Q[k / 4][row][swizzled(row, k % 4 * 16 + lane / 16 * 8)]);
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

// #region consumer: what a thread holds of its warpgroup's 64 rows, and what it does with a K/V tile
// kKeeps: what a backward pass needs goes out too. Variant: a band that says where things lie (phase 25).
template <class T, int D, int Br, int Bc, bool kKeeps, class Variant>
struct Consumer {
  Tiles<D, Br, Bc>& tiles;
  Variant band;
  const float scale_log2;
  const Outputs<T>& out;
  const TensorMap* O_map;
  const int H, warpgroup, lane = threadIdx.x % 32;
  const int my_row = warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;  // of the Q tile; and the one 8 below
  const float c = factor_of(scale_log2), sign = sign_of(scale_log2);

  int row, masked, seen[2];  // row: my_row, of all. From tile `masked` on: seen[2] keys, from the lane's first column
  CarriedRows rows;          // m, c · m and l
  float s[Bc / 2], o[D / 2] = {}, alpha[2];  // S, then P; O; by what O must be multiplied
  unsigned q[D / 16][4], p[Bc / 16][4];      // Q, and P, rounded: the left operands of S and PV
  Cursor<1> Q{0, 1};                         // next() begins with {0, 0}
  Cursor<kStagesOfK> K;
  Cursor<kStagesOfV> V;
  unsigned parity = 0;            // of the mail
  unsigned kept[(Bc + 63) / 64];  // with dropout (phase 29): which numbers of P are
  Work work;
  Keys<Br, Bc, Variant> keys;

  __device__ Consumer(Tiles<D, Br, Bc>& tiles, const Variant& band, float scale_log2, const Outputs<T>& out,
                      const TensorMap* O_map, int H, int warpgroup)
      : tiles(tiles), band(band), scale_log2(scale_log2), out(out), O_map(O_map), H(H), warpgroup(warpgroup) {}
  __device__ __forceinline__ bool next_work() {
    work = tiles.mail.read(parity);
    if (work.head < 0) return false;
    const auto& band = of_sequence_of_warp(this->band, work.head, H);
    keys = Keys<Br, Bc, Variant>(work.q_tile * Br, band);
    row = work.q_tile * Br + my_row;
    masked = scale_log2 < 0 ? 0 : keys.full;  // from this tile on; all where signs must be turned
    seen[0] = band.end(row) - lane % 4 * 2, seen[1] = band.end(row + 8) - lane % 4 * 2;
    if constexpr (Variant::windows) seen[0] -= keys.first, seen[1] -= keys.first;
    Q.next(), tiles.Q_ring[warpgroup].wait_full(Q);
    load_q(q, tiles.Q[warpgroup][0]);
    parity ^= 1;  // behind the return: else ptxas takes stages for different in each lane (R2UR)
    return true;
  }
  __device__ __forceinline__ void probabilities(int tile, bool is_masked) {
    if constexpr (Variant::modifies) {
      if (Variant::waits) wgmma_wait<0>(o, p, q);  // registers are short
      if (band.template softmax<!kKeeps>(s, rows, alpha, c, work.head, H, row, tile * Bc + lane % 4 * 2, !is_masked,
                                         [] {}))
        return;
    }
    if (is_masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
    if constexpr (Variant::windows)
      if (is_masked) hide_left(s, of_sequence(band, work.head, H), work.q_tile * Br + my_row, keys.first + tile * Bc);
    integer_softmax<!kKeeps>(s, rows, alpha, c, [] {});  // registers are short
    trace_value("m", row, rows.m[0]), trace_value("alpha", row, alpha[0]);
    trace_value("m", row + 8, rows.m[1]), trace_value("alpha", row + 8, alpha[1]);
  }
  __device__ __forceinline__ void round_scores() {
    round_p<T>(p, s);
    if (kKeeps) sum_rounded<T>(rows.rounded_l, p, alpha);
    if constexpr (Variant::drops) band.drop_rows(p, kept);
  }
  __device__ __forceinline__ void draw_kept(int tile) {
    if constexpr (Variant::drops) band.template flags_of_rows<Bc>(kept, work.head, H, row, tile * Bc);
  }
  __device__ __forceinline__ void next_scores() {
    tiles.K_ring.wait_full(K);
    begin_scores<T, D / 64>(s, q, tiles.K[K.stage]);
  }
  __device__ __forceinline__ void next_output() {
    tiles.V_ring.wait_full(V);
    begin_output<T>(o, p, tiles.V[V.stage]);
  }
  // Of a Q tile's first K/V tile, whose S is there: nothing has been summed yet.
  __device__ __forceinline__ void first_probabilities() {
    tiles.K_ring.release(K), K.next();
    fence_proxy_async();  // this lane's reads of Q come before TMA's next writes;
    __syncwarp();         // and so do those of all lanes
    tiles.Q_ring[warpgroup].release(Q);
    rows = CarriedRows();
    if constexpr (Variant::modifies) band.begin_rows(rows, work.head, H, c);
    probabilities(keys.tiles - 1, keys.tiles > masked || (Variant::windows && keys.tiles <= keys.cut));
  }
  template <bool kMasked>
  __device__ __forceinline__ void step(int tile) {
    trace_mark("tile", tile);
    next_scores();  // S of this tile
    next_output();  // PV of the tile before
    draw_kept(tile);
    wgmma_wait<1>(s);  // all but the last: S is there
    tiles.K_ring.release(K), K.next();
    probabilities(tile, kMasked);
    wgmma_wait<0>(o, p, q);
    tiles.V_ring.release(V), V.next();
    rescale(o, alpha);
    round_scores();
  }
  // O of a Q tile that is done; `its` m and l, since those of the next one have begun.
  __device__ __forceinline__ void finish(Work done, const CarriedRows& its) {
    float factor[2];
    if constexpr (Variant::drops) rescale(o, {band.factor, band.factor});
    const int first_row = done.q_tile * Br;
    const auto& band = of_sequence_of_warp(this->band, done.head, H);
    const OutputsOf<T, Head> to = outputs_of_head(out, done.head, H, band);
    finish_rows(its, factor, to.LSE, first_row + my_row, band.Sq, c);
    if constexpr (kKeeps) finish_kept(its, o, factor, to, first_row + my_row, c);
    if (to.O_wide.data)
      store_wide(o, factor, to.O_wide, first_row + my_row);
    else
      store_tile<T>(o, factor, tiles.O[warpgroup], O_map, band.rows(done.head, H, first_row + warpgroup * 64),
                    warpgroup);
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = 0;
  }
  // All Q tiles of the block; of each all K/V tiles, from the last to the first.
  __device__ __forceinline__ void run() {
    if (!next_work()) return;
    next_scores();
    draw_kept(keys.tiles - 1);
    wgmma_wait<0>(s, q);
    first_probabilities();
    round_scores();
    for (;;) {
      int tile = keys.tiles - 2;
#pragma unroll 1
      for (; tile >= masked; --tile) step<true>(tile);
#pragma unroll 1
      for (; tile >= keys.cut; --tile) step<false>(tile);
      if constexpr (Variant::windows)
#pragma unroll 1
        for (; tile >= 0; --tile) step<true>(tile);
      const Work done = work;
      const CarriedRows its = rows;
      if (!next_work()) {
        next_output();
        wgmma_wait<0>(o, p);
        return finish(done, its);
      }
      next_scores();  // S of the next Q tile
      next_output();  // the last PV of this one
      draw_kept(keys.tiles - 1);
      wgmma_wait<1>(s);
      first_probabilities();
      wgmma_wait<0>(o, p, q);
      tiles.V_ring.release(V), V.next();
      finish(done, its);
      round_scores();
    }
  }
};
// #endregion

// #region setup: the barriers
template <class T, int D, int Br, int Bc, bool kKeeps, class Variant>
__global__ void __launch_bounds__(Br * 2 + 128, 1)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map,
              Outputs<T> out /*LSE and more*/, unsigned* counter /*0*/, Schedule schedule, float scale_log2,
              Variant band, int H) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const int warpgroup = uniform(threadIdx.x / 128);

  if (threadIdx.x == 0) {
    for (auto& ring : tiles.Q_ring) ring.init(4);            // a warpgroup's warps
    tiles.K_ring.init(Br / 16), tiles.V_ring.init(Br / 16);  // all
    tiles.mail.init(Br * 2 + 1);                             // each lane of the consumers, and the loading thread
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  // #endregion

  // #region producer: one thread draws the numbers and loads Q, another loads K and V
  if (warpgroup == Br / 64) {
    setmaxnreg_dec<kProducerRegisters>();
    const bool loads = threadIdx.x % 128 == 0;   // one thread of a warp, and one
    const bool draws = threadIdx.x % 128 == 32;  // of another: neither waits where the other does
    if (draws) {
      bool first = true;
      Cursor<1> at;  // of the mail, too
      for (;; at.next(), first = false) {
        mbarrier_wait(&tiles.mail.empty, at.parity ^ 1);
        const Work work = draw(schedule_of(band, schedule), counter, first);
        tiles.mail.post(work);
        if (work.head < 0) return;
        // Each warpgroup gets its rows by themselves; the last ones, which see the most keys, first.
        for (int i = Br / 64 - 1; i >= 0; --i)
          tiles.Q_ring[i].fill(tiles.Q[i], at, &Q_map, band.rows(work.head, H, work.q_tile * Br + i * 64));
      }
    }
    if (loads) load_keys_of_all<Br, Bc>(tiles, Cursor<kStagesOfK>(), Cursor<kStagesOfV>(), &K_map, &V_map, band, H);
    return;
  }
  // #endregion

  // #region loop: the consumers
  setmaxnreg_inc<kConsumerRegisters>();
  Consumer<T, D, Br, Bc, kKeeps, Variant> consumer(tiles, band, scale_log2, out, &O_map, H, warpgroup);
  consumer.run();
  wait_for_stores();
}
// #endregion

// #region launch
struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;
  static constexpr bool counts = true;  // DeviceProblem::counter

  template <class T, int D, int Br, int Bc, class Variant = Plain>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = keeps(p) ? attention<T, D, Br, Bc, true, Variant> : attention<T, D, Br, Bc, false, Variant>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const Schedule schedule = schedule_of<D, Br>(p);
    kernel<<<blocks_of(schedule), Br * 2 + 128, shared_bytes, p.stream>>>(
        map_of(p, p.Q, p.H, 64), map_of_keys(p, p.K, Bc), map_of_keys(p, p.V, Bc), map_of_output(p), outputs_of(p),
        p.counter, schedule, p.scale_log2, Variant::of(p), p.H);
  }
};
// #endregion

}  // namespace flash::phase18::inline FLASH_MACHINE
