// Phase 19: a design for each head dimension; that of D = 128 is phase 18's. New: three or four warpgroups of consumers
// at D = 64, where registers are not what is short; at D = 256 tiles of 64 keys, and O is stored from registers.
// Run it: ./flash tour 19     Test it: ./flash test 19
#pragma once
#include "phases/13-instruction-diet/training.cuh"  // Outputs, sum_rounded, finish_kept
#include "phases/14-tma-wgmma/softmax.cuh"          // Rows, finish_rows
#include "phases/14-tma-wgmma/tiles.cuh"            // load_tile, begin_scores, begin_output
#include "phases/15-warp-specialised/ring.cuh"      // Ring, Cursor
#include "phases/17-persistent/schedule.cuh"        // Schedule, draw, Mail, Keys, store_tile
#include "phases/18-diet/attention.cuh"             // the design for D = 128
#include "phases/18-diet/maximum.cuh"               // integer_softmax
#include "phases/19-beyond/phase.hpp"

namespace flash::phase19::inline FLASH_MACHINE {

// #region design: what there is of what, and the barriers
// What fits into 64 Ki registers and 227 KiB of shared memory.
template <int D, int Br, int Bc>
struct Design {
  static constexpr int consumers = Br / 64;  // warpgroups
  // Registers per thread: (consumers + 1) · 128 threads are launched with as many for each; then they move.
  static constexpr int consumer_registers = consumers == 2 ? 232 : consumers == 3 ? 160 : 112;
  static constexpr int producer_registers = consumers == 2 ? 40 : 32;
  static constexpr int q_buffers = D == 64 ? 2 : 1;
  static constexpr int k_stages = D == 64 && Bc == 64 ? 4 : 2, v_stages = k_stages;
  static constexpr bool staged = D == 64;  // O goes out through shared memory
};

template <int D, int Br, int Bc, class L = Design<D, Br, Bc>>
struct Tiles {
  alignas(1024) std::uint16_t Q[L::consumers][L::q_buffers][D / 64][64][64];
  alignas(1024) std::uint16_t K[L::k_stages][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[L::v_stages][D / 64][Bc][64];
  alignas(1024) std::uint16_t O[L::staged ? L::consumers : 0][D / 64][64][64];  // on its way out
  // barrier        who arrives                       how many       who waits                for what
  // Q_ring.full    the drawing thread                1, and bytes   consumers, each Q tile   Q is there
  // Q_ring.empty   a lane of each consumer's warp    4, of its own  the drawing thread       nobody reads it any more
  // K_ring.full    the loading thread                1, and bytes   consumers, before S      the stage's K is there
  // K_ring.empty   a lane of each consumer's warp    Br / 16        the loading thread       nobody reads it any more
  // V_ring         as K_ring, but before PV
  // mail.full      the drawing thread                1              all others               the next number is there
  // mail.empty     consumers, the loading thread     Br * 2 + 1     the drawing thread       all have read it
  Ring<L::q_buffers> Q_ring[L::consumers];  // one for each warpgroup
  Ring<L::k_stages> K_ring;
  Ring<L::v_stages> V_ring;
  Mail mail;
};
// #endregion

// #region store: O goes out from registers, 16 bytes at a time
// O of a warpgroup without a place in shared memory. Each four lanes have four neighbouring pairs of 32 columns' four
// groups; they exchange them so that each has the four pairs of one group, 16 bytes.
template <class T, int N>
__device__ void store_rows(const float (&o)[N], const float (&factor)[2], Head<T> O, int row) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < N; i += 16)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      unsigned w[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = i + 4 * e + 2 * r;
        w[e] = pack<T>(o[at] * factor[r], o[at + 1] * factor[r]);
      }
      const unsigned x0 = __shfl_xor_sync(0xffffffffu, odd ? w[0] : w[1], 1);
      const unsigned x1 = __shfl_xor_sync(0xffffffffu, odd ? w[2] : w[3], 1);
      (odd ? w[0] : w[1]) = x0, (odd ? w[2] : w[3]) = x1;
      const unsigned y0 = __shfl_xor_sync(0xffffffffu, upper ? w[0] : w[2], 2);
      const unsigned y1 = __shfl_xor_sync(0xffffffffu, upper ? w[1] : w[3], 2);
      (upper ? w[0] : w[2]) = y0, (upper ? w[1] : w[3]) = y1;
      const int column = i * 2 + threadIdx.x % 4 * 8;
      auto* to = reinterpret_cast<std::uint16_t*>(O.data) + std::int64_t{row + 8 * r} * O.stride + column;
      if (row + 8 * r < O.rows && column < O.cols) store8(to, make_uint4(w[0], w[1], w[2], w[3]));
    }
}
// #endregion

// #region consumer: what a thread holds of its warpgroup's 64 rows, and what it does with a K/V tile
// Of the K/V tiles that a warpgroup sees, what is the same in all phases without windows and lists.
template <class Variant>
struct OfWarpgroup {
  static constexpr int cut = 0;  // as in Keys
  __device__ static int number(int tile) { return tile; }
};
// kKeeps: what a backward pass needs goes out too. Variant: a band that says where things lie (phase 25).
template <class T, int D, int Br, int Bc, bool kKeeps, class Variant>
struct Consumer {
  using L = Design<D, Br, Bc>;
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
  float s[Bc / 2], o[D / 2] = {}, alpha[2];     // S, then P; O; by what O must be multiplied
  unsigned p[Bc / 16][4];                       // P, rounded, as the left operand of PV
  Cursor<L::q_buffers> Q{L::q_buffers - 1, 1};  // next() begins with {0, 0}
  Cursor<L::k_stages> K;
  Cursor<L::v_stages> V;
  unsigned parity = 0;            // of the mail
  unsigned kept[(Bc + 63) / 64];  // with dropout (phase 29): which numbers of P are
  Work work;
  int my_tiles, unseen;  // K/V tiles that the warpgroup sees; that others see, and it does not
  OfWarpgroup<Variant> part;

  __device__ Consumer(Tiles<D, Br, Bc>& tiles, const Variant& band, float scale_log2, const Outputs<T>& out,
                      const TensorMap* O_map, int H, int warpgroup)
      : tiles(tiles), band(band), scale_log2(scale_log2), out(out), O_map(O_map), H(H), warpgroup(warpgroup) {}
  __device__ __forceinline__ bool next_work() {
    work = tiles.mail.read(parity);
    if (work.head < 0) return false;
    const auto& band = of_sequence_of_warp(this->band, work.head, H);
    Keys<64, Bc, Variant> mine(work.q_tile * Br + warpgroup * 64, band);
    my_tiles = uniform(mine.tiles), unseen = uniform(Keys<Br, Bc, Variant>(work.q_tile * Br, band).tiles - mine.tiles);
    if constexpr (Variant::windows) {
      const Keys<Br, Bc, Variant> all(work.q_tile * Br, band);
      mine.take_part(all, work.q_tile * Br + warpgroup * 64, band);
      const int left = uniform(mine.first - all.first) / Bc;
      part.first = uniform(mine.first), part.cut = uniform(mine.cut), unseen += part.behind - left, part.behind = left;
    }
    if constexpr (Variant::skips) {  // all warpgroups have the same tiles
      part.list = band.list_of_rows(work.head / H, work.head % H, work.q_tile);
      my_tiles = uniform(max(part.list[0], 1)), mine.full = uniform(part.list[1]), unseen = 0;
    }
    row = work.q_tile * Br + my_row;
    masked = uniform(scale_log2 < 0 ? 0 : mine.full);  // from this tile on; all where signs must be turned
    seen[0] = band.end(row) - lane % 4 * 2, seen[1] = band.end(row + 8) - lane % 4 * 2;
    if constexpr (Variant::windows) seen[0] -= part.first, seen[1] -= part.first;
    Q.next(), tiles.Q_ring[warpgroup].wait_full(Q);
    parity ^= 1;  // behind the return: else ptxas takes stages for different in each lane (R2UR)
    return true;
  }
  // Softmax of the tile with that number. PV of the one before is waited for ahead of the exponentials, so that what
  // follows it runs in their shadow.
  template <class F>
  __device__ __forceinline__ void probabilities(int tile, bool is_masked, const F& wait_for_output) {
    if constexpr (Variant::modifies) {
      if (Variant::waits) wgmma_wait<0>(o, p);  // registers are short
      if (band.template softmax<!kKeeps>(s, rows, alpha, c, work.head, H, row, tile * Bc + lane % 4 * 2, !is_masked,
                                         wait_for_output))
        return;
    }
    if (is_masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
    if constexpr (Variant::windows)
      if (is_masked) hide_left(s, of_sequence(band, work.head, H), work.q_tile * Br + my_row, part.first + tile * Bc);
    integer_softmax<!kKeeps>(s, rows, alpha, c, wait_for_output);
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
    begin_scores<T>(s, tiles.Q[warpgroup][Q.stage], tiles.K[K.stage]);
  }
  __device__ __forceinline__ void next_output() {
    tiles.V_ring.wait_full(V);
    begin_output<T>(o, p, tiles.V[V.stage]);
  }
  __device__ __forceinline__ void wait_for_output() {
    wgmma_wait<0>(o, p);
    tiles.V_ring.release(V), V.next();
  }
  // Tiles that only later rows see are left as they come.
  __device__ __forceinline__ void pass_K() {
    for (int i = 0; i < unseen; ++i) tiles.K_ring.wait_full(K), tiles.K_ring.release(K), K.next();
  }
  __device__ __forceinline__ void pass_V() {
    for (int i = 0; i < unseen; ++i) tiles.V_ring.wait_full(V), tiles.V_ring.release(V), V.next();
  }
  // Of a Q tile's first K/V tile: nothing has been summed yet.
  __device__ __forceinline__ void first_probabilities() {
    draw_kept(my_tiles - 1);
    if constexpr (Variant::modifies) band.template fetch<Bc / 2>(work.head, H, row, (my_tiles - 1) * Bc + lane % 4 * 2);
    wgmma_wait<0>(s);
    tiles.K_ring.release(K), K.next();
    if (my_tiles == 1) tiles.Q_ring[warpgroup].release(Q);
    rows = CarriedRows();
    if constexpr (Variant::modifies) band.begin_rows(rows, work.head, H, c);
    probabilities(part.number(my_tiles - 1), my_tiles > masked || (Variant::windows && my_tiles <= part.cut), [] {});
    round_scores();
  }
  template <bool kMasked>
  __device__ __forceinline__ void step(int tile) {
    const int number = part.number(tile);
    trace_mark("tile", number);
    next_scores();  // S of this tile
    next_output();  // PV of the tile before
    draw_kept(tile);
    wgmma_wait<1>(s);  // all but the last: S is there
    tiles.K_ring.release(K), K.next();
    if (tile == 0) tiles.Q_ring[warpgroup].release(Q);  // the last product with Q
    probabilities(number, kMasked, [&] { wait_for_output(); });
    rescale(o, alpha);
    round_scores();
  }
  // O of a Q tile that is done.
  __device__ __forceinline__ void finish(Work done) {
    float factor[2];
    if constexpr (Variant::drops) rescale(o, {band.factor, band.factor});
    const int first_row = done.q_tile * Br;
    const auto& band = of_sequence_of_warp(this->band, done.head, H);
    const OutputsOf<T, Head> to = outputs_of_head(out, done.head, H, band);
    finish_rows(rows, factor, to.LSE, first_row + my_row, band.Sq, c);
    if constexpr (kKeeps) finish_kept(rows, o, factor, to, first_row + my_row, c);
    if (to.O_wide.data) {
      store_wide(o, factor, to.O_wide, first_row + my_row);
    } else if constexpr (L::staged) {
      store_tile<T>(o, factor, tiles.O[warpgroup], O_map, band.rows(done.head, H, first_row + warpgroup * 64),
                    warpgroup);
    } else {
      store_rows(o, factor, to.O, first_row + my_row);
    }
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = 0;
  }
  // All Q tiles of the block; of each all K/V tiles that the warpgroup sees, from the last to the first.
  __device__ __forceinline__ void run() {
    bool more = next_work();
    if (more) {
      pass_K(), pass_V();
      next_scores();
      first_probabilities();
    }
    while (more) {
      int tile = my_tiles - 2;
#pragma unroll 1
      for (; tile >= masked; --tile) step<true>(tile);
#pragma unroll 1
      for (; tile >= part.cut; --tile) step<false>(tile);
      if constexpr (Variant::windows)
#pragma unroll 1
        for (; tile >= 0; --tile) step<true>(tile);

      next_output();  // the last PV of this Q tile
      const Work done = work;
      more = next_work();
      if (!more) {
        wait_for_output();
        if constexpr (Variant::windows) unseen = part.behind, pass_K(), pass_V();
        finish(done);
      } else {
        pass_K();
        next_scores();        // S of the next one, while this one's O goes out
        wgmma_wait<1>(o, p);  // all but the last: O is there
        tiles.V_ring.release(V), V.next();
        pass_V();
        finish(done);
        first_probabilities();
      }
    }
  }
};
// #endregion

// #region setup: the barriers
template <class T, int D, int Br, int Bc, bool kKeeps, class Variant>
__global__ void __launch_bounds__(Br * 2 + 128, 1)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map, Outputs<T> out,
              unsigned* counter /*0*/, Schedule schedule, float scale_log2, Variant band, int H) {
  using L = Design<D, Br, Bc>;
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
    setmaxnreg_dec<L::producer_registers>();
    const bool loads = threadIdx.x % 128 == 0;   // one thread of a warp, and one
    const bool draws = threadIdx.x % 128 == 32;  // of another: neither waits where the other does
    if (draws) {
      bool first = true;
      Cursor<L::q_buffers> at;
      for (unsigned parity = 0;; parity ^= 1, at.next(), first = false) {
        mbarrier_wait(&tiles.mail.empty, parity ^ 1);
        const Work work = draw(schedule_of(band, schedule), counter, first);
        tiles.mail.post(work);
        if (work.head < 0) return;
        if constexpr (L::q_buffers == 1)  // no room for it yet, but in the L2 cache there is
          for (int row = work.q_tile * Br; row < work.q_tile * Br + Br; row += 64)
            for (int column = 0; column < D; column += 64)
              prefetch_box<64>(&Q_map, column, band.rows(work.head, H, row));
        // Each warpgroup gets its rows by themselves; the last ones, which see the most keys, first.
        for (int i = Br / 64 - 1; i >= 0; --i)
          tiles.Q_ring[i].fill(tiles.Q[i], at, &Q_map, band.rows(work.head, H, work.q_tile * Br + i * 64));
      }
    }
    if (loads) load_keys_of_all<Br, Bc>(tiles, Cursor<L::k_stages>(), Cursor<L::v_stages>(), &K_map, &V_map, band, H);
    return;
  }
  // #endregion

  // #region loop: the consumers
  setmaxnreg_inc<L::consumer_registers>();
  Consumer<T, D, Br, Bc, kKeeps, Variant> consumer(tiles, band, scale_log2, out, &O_map, H, warpgroup);
  consumer.run();
  if (L::staged) wait_for_stores();
}
// #endregion

// #region launch
struct Attention {
  template <int D, int Br, int Bc>
  using Shared = std::conditional_t<D == 128, phase18::Tiles<D, Br, Bc>, Tiles<D, Br, Bc>>;
  static constexpr bool counts = true;  // DeviceProblem::counter

  // Measured fastest on an H200 (part 4 of the book).
  static Blocks preferred(const AnyProblem& p) {
    const bool causal = p.options.mask.is_causal();
    const int D = features.padded(p.widest());
    if (D == 64) return p.Sk() < (causal ? 4096 : 2048) ? Blocks{256, 64} : Blocks{192, 128};
    if (D == 128) return {128, 128};
    return p.Sk() < 8192 ? Blocks{128, 64} : Blocks{128, 80};
  }

  template <class T, int D, int Br, int Bc, class Variant = Plain>
  static void launch(const DeviceProblem<T>& p) {
    if constexpr (D == 128)
      phase18::Attention::launch<T, D, Br, Bc, Variant>(p);
    else
      launch_here<T, D, Br, Bc, Variant>(p);
  }

  template <class T, int D, int Br, int Bc, class Variant>
  static void launch_here(const DeviceProblem<T>& p) {
    const auto kernel = keeps(p) ? attention<T, D, Br, Bc, true, Variant> : attention<T, D, Br, Bc, false, Variant>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>) + Variant::shared_bytes;
    allow_shared_memory(kernel, shared_bytes);
    const Schedule schedule = schedule_of<D, Br>(p);
    kernel<<<blocks_of(schedule), Br * 2 + 128, shared_bytes, p.stream>>>(
        map_of(p, p.Q, p.H, 64), map_of_keys(p, p.K, Bc), map_of_keys(p, p.V, Bc), map_of_output(p), outputs_of(p),
        p.counter, schedule, p.scale_log2, Variant::of(p), p.H);
  }
};
// #endregion

}  // namespace flash::phase19::inline FLASH_MACHINE
