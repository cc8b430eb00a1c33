// Phase 19: a design for each head dimension; that of D = 128 is phase 18's. New: three or four warpgroups of consumers
// at D = 64, where registers are not what is short; at D = 256 tiles of 64 keys, and O is stored from registers.
// Run it: ./flash tour 19     Test it: ./flash test 19
#pragma once
#include "phases/18-diet/attention.cuh"
#include "phases/19-beyond/phase.hpp"

namespace flash::phase19::inline FLASH_MACHINE {

// #region design
using phase14::begin_output, phase14::begin_scores, phase14::factor_of, phase14::finish_rows, phase14::hide,
    phase14::load_tile, phase14::map_of, phase14::map_of_keys, phase14::Mask, phase14::mask_of, phase14::rescale,
    phase14::round_p, phase14::Rows, phase14::uniform;
using phase15::Ring, phase18::integer_softmax;
using phase17::blocks_of, phase17::draw, phase17::Keys, phase17::Schedule, phase17::schedule_of, phase17::store_tile,
    phase17::Work;

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
  alignas(1024) std::uint16_t Q[L::q_buffers][L::consumers][D / 64][64][64];
  alignas(1024) std::uint16_t K[L::k_stages][D / 64][Bc][64];
  alignas(1024) std::uint16_t V[L::v_stages][D / 64][Bc][64];
  alignas(1024) std::uint16_t O[L::staged ? L::consumers : 0][D / 64][64][64];
  std::uint64_t Q_full[L::q_buffers][L::consumers], Q_empty[L::q_buffers][L::consumers];
  std::uint64_t K_full[L::k_stages], K_empty[L::k_stages], V_full[L::v_stages], V_empty[L::v_stages];
  std::uint64_t work_full, work_empty;
  Work work;
};
// #endregion

// #region store
// O of a warpgroup without a place in shared memory. Each four lanes have four neighbouring pairs of 32 columns' four
// groups; they exchange them so that each has the four pairs of one group, 16 bytes.
template <class T, int kRegisters>
__device__ void store_rows(const float (&o)[kRegisters], const float (&factor)[2], Head<T> O, int row) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < kRegisters; i += 16)
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

// #region setup
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br * 2 + 128, 1)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map,
              Heads<T> O /*[B, H, Sq, D]*/, float* LSE /*[B, H, Sq] or null*/, unsigned* counter /*0*/,
              Schedule schedule, float scale_log2, Mask mask, int H) {
  using L = Design<D, Br, Bc>;
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  constexpr int kWarps = 4 * L::consumers;
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.work_full, 1), mbarrier_init(&tiles.work_empty, kWarps * 32 + 1);  // each lane arrives
    for (auto& of_all : tiles.Q_full)
      for (auto& full : of_all) mbarrier_init(&full, 1);
    for (auto& full : tiles.K_full) mbarrier_init(&full, 1);
    for (auto& full : tiles.V_full) mbarrier_init(&full, 1);
    for (auto& of_all : tiles.Q_empty)
      for (auto& empty : of_all) mbarrier_init(&empty, 4);  // a warpgroup's warps
    for (auto& empty : tiles.K_empty) mbarrier_init(&empty, kWarps);
    for (auto& empty : tiles.V_empty) mbarrier_init(&empty, kWarps);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  const int warpgroup = uniform(threadIdx.x / 128), lane = threadIdx.x % 32;
  Ring<L::q_buffers> Q{L::q_buffers - 1, 1};  // next() begins with 0
  Ring<L::k_stages> K;
  Ring<L::v_stages> V;
  // #endregion

  // #region producer
  if (warpgroup == L::consumers) {
    setmaxnreg_dec<L::producer_registers>();
    // One thread draws the numbers and loads Q.
    if (threadIdx.x % 128 == 32) {
      bool first = true;
      for (unsigned parity = 0;; parity ^= 1, first = false) {
        Q.next();
        mbarrier_wait(&tiles.work_empty, parity ^ 1);
        const Work work = draw(schedule, counter, first);
        tiles.work = work;
        mbarrier_arrive(&tiles.work_full);
        if (work.head < 0) return;
        if constexpr (L::q_buffers == 1)  // no room for it yet, but in the L2 cache there is
          for (int row = work.q_tile * Br; row < work.q_tile * Br + Br; row += 64)
            for (int column = 0; column < D; column += 64)
              cp_async_bulk_prefetch_tensor(&Q_map, column, row, work.head % H, work.head / H);
        for (int i = L::consumers - 1; i >= 0; --i) {  // as in phase 18; they begin first, too
          mbarrier_wait(&tiles.Q_empty[Q.stage][i], Q.parity ^ 1);
          mbarrier_arrive_expect_tx(&tiles.Q_full[Q.stage][i], sizeof tiles.Q[0][0]);
          load_tile(tiles.Q[Q.stage][i], &Q_map, &tiles.Q_full[Q.stage][i], work.q_tile * Br + i * 64, work.head % H,
                    work.head / H);
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
  setmaxnreg_inc<L::consumer_registers>();
  const int my_row = warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;  // of the Q tile
  const float c = factor_of(scale_log2), sign = scale_log2 < 0 ? -1.0f : 1.0f;
  unsigned p[Bc / 16][4];
  float s[Bc / 2], o[D / 2] = {}, alpha[2];
  Rows rows;
  Work work;
  int my_tiles = 0, unseen = 0, masked = 0,
      seen[2];  // tiles that the warpgroup sees; that others see; the rest as in 18
  unsigned parity = 0;
  const auto arrive = [&](std::uint64_t* barrier) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  const auto release_Q = [&] { arrive(&tiles.Q_empty[Q.stage][warpgroup]); };
  const auto release_K = [&] { arrive(&tiles.K_empty[K.stage]), K.next(); };
  const auto release_V = [&] { arrive(&tiles.V_empty[V.stage]), V.next(); };
  const auto pass_K = [&] {
    for (int i = 0; i < unseen; ++i) mbarrier_wait(&tiles.K_full[K.stage], K.parity), release_K();
  };
  const auto pass_V = [&] {
    for (int i = 0; i < unseen; ++i) mbarrier_wait(&tiles.V_full[V.stage], V.parity), release_V();
  };
  const auto next_work = [&] {
    mbarrier_wait(&tiles.work_full, parity);
    parity ^= 1;
    work = {uniform(tiles.work.head), uniform(tiles.work.q_tile)};
    mbarrier_arrive(&tiles.work_empty);
    if (work.head < 0) return false;
    const int first_row = work.q_tile * Br, row = first_row + my_row;
    const Keys<64, Bc> mine(first_row + warpgroup * 64, mask);
    my_tiles = uniform(mine.tiles), masked = uniform(scale_log2 < 0 ? 0 : mine.full);
    unseen = uniform(Keys<Br, Bc>(first_row, mask).tiles - mine.tiles);
    seen[0] = mask.visible(row) - lane % 4 * 2, seen[1] = mask.visible(row + 8) - lane % 4 * 2;
    Q.next();
    mbarrier_wait(&tiles.Q_full[Q.stage][warpgroup], Q.parity);
    return true;
  };
  const auto next_scores = [&] {
    mbarrier_wait(&tiles.K_full[K.stage], K.parity);
    begin_scores<T>(s, tiles.Q[Q.stage][warpgroup], tiles.K[K.stage]);
  };
  const auto next_output = [&] {
    mbarrier_wait(&tiles.V_full[V.stage], V.parity);
    begin_output<T>(o, p, tiles.V[V.stage]);
  };
  // Softmax of a tile. PV of the one before is waited for ahead of the exponentials, so that what follows it runs in
  // their shadow.
  const auto probabilities = [&](auto may_be_masked, int tile, auto wait_for_output) {
    if (may_be_masked && tile >= masked) hide(s, {seen[0] - tile * Bc, seen[1] - tile * Bc}, sign);
    integer_softmax(s, rows, alpha, c, wait_for_output);
    const int row = work.q_tile * Br + my_row;
    trace_value("m", row, rows.m[0]), trace_value("alpha", row, alpha[0]);
    trace_value("m", row + 8, rows.m[1]), trace_value("alpha", row + 8, alpha[1]);
  };
  // Of a Q tile's first K/V tile.
  const auto first_probabilities = [&] {
    wgmma_wait<0>(s);
    release_K();
    if (my_tiles == 1) release_Q();
    rows = Rows();
    probabilities(std::true_type(), my_tiles - 1, [] {});
    round_p<T, Bc>(p, s);
  };
  const auto wait_for_output = [&] {
    wgmma_wait<0>(o, p);
    release_V();
  };
  const auto step = [&](auto may_be_masked, int tile) {
    trace_mark("tile", tile);
    next_scores();  // S of this tile
    next_output();  // PV of the tile before
    wgmma_wait<1>(s);
    release_K();
    if (tile == 0) release_Q();
    probabilities(may_be_masked, tile, wait_for_output);
    rescale(o, alpha);
    round_p<T, Bc>(p, s);
  };
  const auto finish = [&](Work done) {
    float factor[2];
    const int first_row = done.q_tile * Br;
    finish_rows(rows, factor, LSE ? LSE + done.head * O.rows : nullptr, first_row + my_row, mask.Sq, c);
    if constexpr (L::staged)
      store_tile<T>(o, factor, tiles.O[warpgroup], &O_map, first_row + warpgroup * 64, done.head % H, done.head / H,
                    warpgroup);
    else
      store_rows(o, factor, O.head(done.head / H, done.head % H), first_row + my_row);
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = 0;
  };
  // #endregion

  // #region consumer
  bool more = next_work();
  if (more) {
    pass_K(), pass_V();
    next_scores();
    first_probabilities();
  }
  while (more) {
    int tile = my_tiles - 2;
#pragma unroll 1
    for (; tile >= masked; --tile) step(std::true_type(), tile);
#pragma unroll 1
    for (; tile >= 0; --tile) step(std::false_type(), tile);

    next_output();  // the last PV of this Q tile
    const Work done = work;
    more = next_work();
    if (!more) {
      wait_for_output();
      finish(done);
    } else {
      pass_K();
      next_scores();        // S of the next one, while this one's O goes out
      wgmma_wait<1>(o, p);  // all but the last: O is there
      release_V(), pass_V();
      finish(done);
      first_probabilities();
    }
  }
  if (L::staged && threadIdx.x % 128 == 0) cp_async_bulk_wait<0>();  // shared memory must live until O has left it
  // #endregion
}

// #region launch
struct Attention {
  template <int D, int Br, int Bc>
  using Shared = std::conditional_t<D == 128, phase18::Tiles<D, Br, Bc>, Tiles<D, Br, Bc>>;
  static constexpr bool counts = true;  // DeviceProblem::counter

  // Measured fastest on an H200 (part 4 of the book).
  static Blocks preferred(const AnyProblem& p) {
    const bool causal = p.options.mask.is_causal();
    if (features.padded(p.D()) == 64) return p.Sk() < (causal ? 4096 : 2048) ? Blocks{256, 64} : Blocks{192, 128};
    if (features.padded(p.D()) == 128) return {128, 128};
    return p.Sk() < 8192 ? Blocks{128, 64} : Blocks{128, 80};
  }

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    if constexpr (D == 128)
      phase18::Attention::launch<T, D, Br, Bc>(p);
    else
      launch_here<T, D, Br, Bc>(p);
  }

  template <class T, int D, int Br, int Bc>
  static void launch_here(const DeviceProblem<T>& p) {
    const auto kernel = attention<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const Schedule schedule = schedule_of<D, Br>(p);
    kernel<<<blocks_of(schedule), Br * 2 + 128, shared_bytes, p.stream>>>(
        map_of(p.Q, p.B, p.H, 64), map_of_keys(p, p.K, Bc), map_of_keys(p, p.V, Bc), map_of(p.O, p.B, p.H, 64), p.O,
        p.LSE, p.counter, schedule, p.scale_log2, mask_of(p), p.H);
  }
};
// #endregion

}  // namespace flash::phase19::inline FLASH_MACHINE
