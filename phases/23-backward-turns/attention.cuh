// Phase 23: the warpgroups take turns at dQ, and no barrier joins them. New since 22: one makes all of a tile's dQ, the
// other the next one's, each a tile behind; dQ leaves through shared memory, added up by one thread's bulk reductions.
// Run it: ctest -L phase23     The derivation: docs/backward.md
#pragma once
#include "phases/17-persistent/schedule.cuh"  // store_tile, wait_for_stores
#include "phases/23-backward-turns/phase.hpp"
#include "phases/23-backward-turns/pieces.cuh"

namespace flash::phase23::inline FLASH_MACHINE {

// #region tiles: shared memory of a block, and its barriers
constexpr int kStages = 2;  // one Q tile is multiplied while the next one is loaded
template <int D, int Br, int Bc>
struct Tiles {
  alignas(1024) std::uint16_t K[Bc / 64][D / 64][64][64];  // of each warpgroup; in the end dK, on its way out
  alignas(1024) std::uint16_t V[Bc / 64][D / 64][64][64];  // likewise dV
  alignas(1024) std::uint16_t Q[kStages][D / 64][Br][64];
  alignas(1024) std::uint16_t dO[kStages][D / 64][Br][64];
  alignas(1024) std::uint16_t dS[kStages][Br / 64][Bc][64];  // dSᵀ, rounded: [panel of queries][key][query]
  alignas(1024) float4 dQ[kStages][Br / 16][D / 8][32];      // on its way out, as it lies in dQ_sum
  RowPiece rows[kStages][Br / 64];
  // barrier         who arrives                     how many       who waits               for what
  // K_full, V_full  the loading thread              1, and bytes   consumers, once         K is there, or V
  // Q_ring.full     the loading thread              1, and bytes   consumers, before S     Q, the numbers of its rows
  // Q_ring.empty    a lane of each consumer's warp  Bc / 16        the loading thread      nobody reads them any more
  // dO_ring         as Q_ring, but before dP
  // dS_ring.full    a lane of each consumer's warp  Bc / 16        whose turn dQ is        dS of all keys is there
  // dS_ring.empty   a lane of each of its warps     4              consumers, before dS    dQ has been made of it
  // dQ_ring.full    a lane of each of its warps     4              the adding thread       dQ of a tile is there
  // dQ_ring.empty   the adding thread               1              whose turn dQ is        it has been read
  std::uint64_t K_full, V_full;
  Ring<kStages> Q_ring, dO_ring, dS_ring, dQ_ring;
};
constexpr int kSumming = 2;      // warps that sum the rows of dS
constexpr int kOfConsumers = 3;  // a named barrier, for the end; 1 and 2 are store_tile's

// Registers per thread: the block is launched with 168 for each; 128 · (2 · 240 + 24) are no more than 384 · 168.
constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
// #endregion

// #region consumer: what a thread holds of its warpgroup's 64 keys, and what it does with a Q tile
template <class T, int D, int Br, int Bc, bool kAddQ>
struct Consumer {
  // Where S and dP have 64 queries, dV is begun before dS is made, which it hides; and dQ, all of whose columns are 64
  // numbers a lane, has to wait for dV and dK. With 128 queries registers are short in the one place and not in the
  // other.
  static constexpr bool kEarly = Br == 64;

  Tiles<D, Br, Bc>& tiles;
  const Backward<T>& a;
  const int warpgroup;
  int from[2];  // the first queries that see the lane's two keys, counted from the lane's first column of the next tile

  float s[Br / 2], dp[Br / 2];             // Sᵀ, then Pᵀ; dPᵀ, then dSᵀ
  float dv[D / 2] = {}, dk[D / 2] = {};    // 64 keys
  float dq[Br / 64][D / 2];                // all of a tile
  unsigned p[Br / 16][4], ds[Br / 16][4];  // Pᵀ and dSᵀ, rounded, as left operands
  Cursor<kStages> at, turn;                // of Q, dO and dS; of dS and dQ, a tile behind
  float* excess;                           // [Br], of the tile whose turn it is
  const int sums;                          // are rows of dS summed? The same in all lanes

  __device__ Consumer(Tiles<D, Br, Bc>& tiles, const Backward<T>& a, int warpgroup, int first_row, int first_key,
                      const Band<int>& band, float* excess, int sums)
      : tiles(tiles), a(a), warpgroup(warpgroup), excess(excess), sums(sums) {
    const int my_key = first_key + warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane_row();
    for (int r = 0; r < 2; ++r) from[r] = first_query(my_key + 8 * r, band) - first_row - lane_column();
  }
  __device__ __forceinline__ void step(int tile, bool first, bool masked) {
    trace_mark(masked ? "masked" : "full", tile);
    tiles.Q_ring.wait_full(at);
    begin_scores<T>(s, tiles.K[warpgroup], tiles.Q[at.stage]);
    const bool extreme = any_extreme(tiles.rows[at.stage]);
    if (first) mbarrier_wait(&tiles.V_full, 0);
    tiles.dO_ring.wait_full(at);
    begin_scores<T>(dp, tiles.V[warpgroup], tiles.dO[at.stage]);
    wgmma_wait<1>(s);  // all but the last: S is there
    probabilities(s, tiles.rows[at.stage], extreme, a);
    if (masked) hide_queries(s, from);
    from[0] -= Br, from[1] -= Br;
    if (kEarly) {
      round_p<T>(p, s);
      begin_output<T>(dv, p, tiles.dO[at.stage]);
    }
    wgmma_wait<kEarly>(dp);
    gradients(dp, s, tiles.rows[at.stage]);
    if (!kEarly) round_p<T>(p, s);
    round_p<T>(ds, dp);
    if (kAddQ) {
      tiles.dS_ring.wait_empty(at);
      store_ds(tiles.dS[at.stage], ds, warpgroup * 64);
    }
    if (!kEarly) begin_output<T>(dv, p, tiles.dO[at.stage]);
    if (kAddQ) publish(tiles.dS_ring, at);
    begin_output<T>(dk, ds, tiles.Q[at.stage]);
    if (kAddQ && !first && my_turn()) {
      if (kEarly) leave_tile<0>();  // dQ gets the registers of S and dP
      begin_turn();
      if (!kEarly) leave_tile<Br / 64>();  // all but dQ
      finish_turn();
    } else {
      leave_tile<0>();
    }
    if (!first) turn.next(), excess += Br;
  }
  // dV and dK of a tile are there; kPending groups of dQ are not.
  template <int kPending>
  __device__ __forceinline__ void leave_tile() {
    wgmma_wait<kPending>(dv, dk, p, ds);
    __syncwarp();  // all lanes have read the numbers of rows
    tiles.dO_ring.release(at), tiles.Q_ring.release(at), at.next();
  }
  // Whose turn is dQ of the tile before? Tiles with an even number are warpgroup 1's.
  __device__ bool my_turn() const { return turn.stage != warpgroup; }
  __device__ __forceinline__ void begin_turn() {
    tiles.dS_ring.wait_full(turn);
#pragma unroll
    for (int i = 0; i < Br / 64; ++i) begin_dq<T>(dq[i], tiles.dS[turn.stage][i], tiles.K, 0);
  }
  __device__ __forceinline__ void finish_turn() {
    const int warp = threadIdx.x % 128 / 32;
    wgmma_wait<0>(dq);
    if (sums) {
#pragma unroll
      for (int i = 0; i < Br / 64; ++i)
        add_excess<T, Bc>(excess + i * 64 + warp * 16, tiles.dS[turn.stage][i], 0, warp * 16);
      __syncwarp();  // all lanes have read dS
    }
    tiles.dS_ring.release(turn);
    tiles.dQ_ring.wait_empty(turn);
#pragma unroll
    for (int i = 0; i < Br / 64; ++i)
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        const float(&x)[4] = c_fragment(dq[i], n);
        tiles.dQ[turn.stage][i * 4 + warp][n][threadIdx.x % 32] = make_float4(x[0], x[1], x[2], x[3]);
      }
    publish(tiles.dQ_ring, turn);
  }
};
// #endregion

// #region setup: whose K/V tile, and the barriers
template <class T, int D, int Br, int Bc, bool kAddQ>
__global__ void __launch_bounds__(Bc * 2 + 128, 1)
    keys_backward(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap dO_map,
                  const __grid_constant__ TensorMap K_map, const __grid_constant__ TensorMap V_map,
                  const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map, Backward<T> a,
                  const RowPiece* pieces /*[B * H * padded rows / 64]*/, Band<int> band, unsigned section) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  const KeyWork work = keys_of_section(a.B * a.H, section);
  const int b = work.head / a.H, h = work.head % a.H, first_key = work.kv_tile * Bc;
  const QueryRange range = query_range<Br, Bc>(first_key, band);
  const int warpgroup = uniform(threadIdx.x / 128);

  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.K_full, 1), mbarrier_init(&tiles.V_full, 1);
    tiles.Q_ring.init(Bc / 16), tiles.dO_ring.init(Bc / 16);  // warps
    init_handover(tiles.dS_ring, Bc / 16, 4);                 // all write, one warpgroup reads
    init_handover(tiles.dQ_ring, 4, 1);                       // that writes, a thread reads
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  // #endregion

  // #region producer: one thread loads, another adds
  const int count = range.end - range.first;  // of Q tiles
  if (warpgroup == Bc / 64) {
    setmaxnreg_dec<kProducerRegisters>();
    const bool loads = threadIdx.x % 128 == 0;  // one thread of a warp, and one
    const bool adds = threadIdx.x % 128 == 32;  // of another: neither waits where the other does
    Cursor<kStages> at;
    if (loads && count > 0) {
      const int first_piece = work.head * static_cast<int>(a.rows / 64);  // of the head
      const auto load_keys = [&](auto& keys, const TensorMap* map, std::uint64_t* full) {
        mbarrier_arrive_expect_tx(full, sizeof keys);
        for (int i = 0; i < Bc / 64; ++i) load_tile(keys[i], map, full, first_key + i * 64, h, b);
      };
      load_keys(tiles.K, &K_map, &tiles.K_full);
#pragma unroll 1
      for (int tile = range.first; tile < range.end; ++tile, at.next()) {
        std::uint64_t* const full = &tiles.Q_ring.full[at.stage];
        tiles.Q_ring.wait_empty(at);
        mbarrier_arrive_expect_tx(full, sizeof tiles.Q[0] + sizeof tiles.rows[0]);
        load_tile(tiles.Q[at.stage], &Q_map, full, tile * Br, h, b);
        cp_async_bulk(tiles.rows[at.stage], pieces + first_piece + tile * (Br / 64), sizeof tiles.rows[0], full);
        if (tile == range.first) load_keys(tiles.V, &V_map, &tiles.V_full);  // S comes first, which needs Q
        tiles.dO_ring.fill(tiles.dO, at, &dO_map, tile * Br, h, b);
      }
    }
    if (kAddQ && adds) {
      float* to = a.dQ_sum + (work.head * a.rows + range.first * Br) * D;
#pragma unroll 1
      for (int i = 0; i < count; ++i, to += Br * D, at.next()) {
        tiles.dQ_ring.wait_full(at);
        cp_reduce_async_bulk_add(to, &tiles.dQ[at.stage][0][0][0].x, sizeof tiles.dQ[0]);
        cp_async_bulk_commit();
        cp_async_bulk_wait_read<1>();  // all but the last: the other place has been read
        if (i > 0) mbarrier_arrive(&tiles.dQ_ring.empty[at.stage ^ 1]);
      }
      cp_async_bulk_wait<0>();  // shared memory must live until then
    }
    return;
  }
  // #endregion

  // #region loop: the consumers, over the Q tiles that see the keys
  setmaxnreg_inc<kConsumerRegisters>();
  const int sums = kAddQ && count > 0 && uniform(a.off_centre[work.head]);
  Consumer<T, D, Br, Bc, kAddQ> consumer(tiles, a, warpgroup, range.first * Br, first_key, band,
                                         a.row_excess + work.head * a.rows + range.first * Br, sums);
  if (count > 0) mbarrier_wait(&tiles.K_full, 0);
#pragma unroll 1
  for (int left = count, masked = range.full - range.first; left > 0; --left, --masked)
    consumer.step(range.end - left, left == count, masked > 0);
  if (kAddQ && count > 0 && consumer.my_turn()) {  // the last tile's
    consumer.begin_turn();
    consumer.finish_turn();
  }
  // #endregion

  // #region store: dV and dK; scale, once: dS is the gradient of S = scale · Q Kᵀ
  const int my_keys = first_key + warpgroup * 64;
  store_tile<T>(consumer.dv, {1, 1}, tiles.V[warpgroup], &dV_map, my_keys, h, b, warpgroup);
  bar_sync(kOfConsumers, Bc * 2);  // both have read K, in whose place dK goes out
  store_tile<T>(consumer.dk, {a.scale, a.scale}, tiles.K[warpgroup], &dK_map, my_keys, h, b, warpgroup);
  wait_for_stores();
}
// #endregion

// #region launch
// The host's side: the numbers of rows; dK and dV; dQ. Atomic: the second makes all three, the last rounds dQ.
struct Gradients {
  template <int D, int Br, int Bc>
  using Shared = Tiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    Backward<T> a = phase20::arguments_of(p);
    a.off_centre = static_cast<int*>(p.workspace[7]);
    const auto kernel = a.dQ_sum ? keys_backward<T, D, Br, Bc, true> : keys_backward<T, D, Br, Bc, false>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const std::int64_t heads = std::int64_t{p.B} * p.H;
    const unsigned section = p.band.cuts_right() ? section_of_keys(heads, p.Q.rows, p.K.rows, D) : 0;
    const auto grid = static_cast<unsigned>((p.K.rows + Bc - 1) / Bc * heads);
    const auto row_blocks = static_cast<unsigned>(heads * a.rows / 64);
    constexpr int threads = Bc * 2 + 128;
    auto* const pieces = static_cast<RowPiece*>(p.workspace[6]);
    if (row_blocks > 0) row_pieces<T, D><<<row_blocks, 256, sizeof(PieceSums<D>), p.stream>>>(a, pieces);
    if (grid > 0)
      kernel<<<grid, threads, shared_bytes, p.stream>>>(
          map_of_queries(p, p.Q, Br), map_of_queries(p, p.dO, Br), map_of_seen_keys(p, p.K), map_of_seen_keys(p, p.V),
          map_of(p.dK, p.B, p.H, 64), map_of(p.dV, p.B, p.H, 64), a, pieces, narrow(p.band), section);
    phase20::launch_dq<D>(p, a);
  }
};
// #endregion

}  // namespace flash::phase23::inline FLASH_MACHINE
