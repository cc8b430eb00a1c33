// Phase 24: dQ goes from block to block. New since 23: of each Q tile the first block stores its share of dQ, others
// add theirs, and the last one rounds the sum on its way out. No kernel clears dQ_sum, none comes behind. Blocks stay.
// Run it: ctest -L phase24     The derivation: docs/backward.md
#pragma once
#include "phases/17-persistent/schedule.cuh"  // store_tile, wait_for_stores
#include "phases/24-backward-fused/phase.hpp"
#include "phases/24-backward-fused/pieces.cuh"
#include "phases/24-backward-fused/tiles.cuh"
#include "phases/24-backward-fused/wide.cuh"

namespace flash::phase24::inline FLASH_MACHINE {

// #region consumer: what a thread holds of its warpgroup's 64 keys, and what it does with a Q tile
template <class T, int D, int Br, int Bc, class Variant>
struct Consumer {
  // Where S and dP have 64 queries, dV is begun before dS is made, which it hides; and dQ, all of whose columns are 64
  // numbers a lane, has to wait for dV and dK. With 128 queries registers are short elsewhere.
  static constexpr bool kEarly = Br == 64;
  static constexpr int kStages = Tiles<D, Br, Bc>::kStages;

  Tiles<D, Br, Bc>& tiles;
  const Backward<T>& a;
  const Variant& band;
  const int warpgroup;
  QueryRange range;  // the share's tiles
  int first_key;
  int from[2];  // the first queries that see the lane's two keys, counted from the lane's first column of the next tile
  OfShare<Variant> part;

  float s[Br / 2], dp[Br / 2];             // Sᵀ, then Pᵀ; dPᵀ, then dSᵀ
  float dv[D / 2], dk[D / 2];              // 64 keys
  float dq[Br / 64][D / 2];                // all of a tile
  unsigned p[Br / 16][4], ds[Br / 16][4];  // Pᵀ and dSᵀ, rounded, as left operands
  Cursor<kStages> at, turn;                // of Q, dO and dS; of dS and dQ, a tile behind
  Cursor<2> to;                            // of shares
  unsigned kept[Br / 64];                  // with dropout (phase 29): which numbers of P are

  __device__ Consumer(Tiles<D, Br, Bc>& tiles, const Backward<T>& a, const Variant& band, int warpgroup)
      : tiles(tiles), a(a), band(band), warpgroup(warpgroup) {}
  __device__ __forceinline__ const Share& share() const { return tiles.shares[to.stage]; }
  // The lane's first row of its warpgroup's products; and the one 8 below.
  static __device__ int my_row() { return threadIdx.x % 128 / 32 * 16 + lane_row(); }
  __device__ Cursor<1> keys() const { return {0, static_cast<unsigned>(to.stage)}; }  // of K and V, a round a share
  __device__ __forceinline__ bool next_share() {                                      // false: there is none
    tiles.share_ring.wait_full(to);
    if (uniform(share().work.head < 0)) return false;
    const QueryRange tiles_of_share = share().tiles;
    range = {uniform(tiles_of_share.first), uniform(tiles_of_share.full), uniform(tiles_of_share.end)};
    first_key = uniform(share().work.kv_tile) * Bc + warpgroup * 64;
    const auto& its = of_sequence(band, share().work.head, a.H);
    find_from(first_key + my_row(), band.tile_of(range.end - 1), its);
#pragma unroll
    for (int i = 0; i < D / 2; ++i) dv[i] = dk[i] = 0;
    if constexpr (Variant::windows) part.template enter<Br, Bc>(share().work.kv_tile, its);
    if constexpr (Variant::skips) part.list = list_of(share(), band);
    tiles.K_ring.wait_full(keys());
    return true;
  }
  __device__ __forceinline__ void find_from(int my_key, int tile, const Band<int>& its) {
    for (int r = 0; r < 2; ++r) from[r] = first_query(my_key + 8 * r, its) - (tile * Br + lane_column());
  }
  __device__ __forceinline__ bool any() const {
    return range.end > range.first;
  }
  // All tiles, but for the way of the last one's dQ. First those that are plain: all rows see all keys, no row of the
  // head is extreme, and the centre does not matter.
  __device__ __forceinline__ void run() {
    constexpr bool kGaps = Variant::windows || Variant::skips;
    if (kGaps && !any()) tiles.V_ring.wait_full(keys());  // several such shares may follow each other
    if (!any()) return;
    const bool cut = Variant::windows && (!Variant::lengths || part.cuts(range.end - 1));
    const bool special = cut || tiles.centre[D] != 0 || tiles.centre[D + 1] != 0;
    const int plain = special ? range.end : max(range.full, range.first);
    steps<true>(range.end - 1, plain);
    steps<false>(min(plain, range.end) - 1, range.first);
  }
  template <bool kPlain>
  __device__ __forceinline__ void steps(int tile, int last) {
#pragma unroll 1
    for (; tile >= last; --tile)
      step<kPlain>(tile, tile == range.end - 1, !kPlain && (tile < range.full || part.cuts(tile)));
  }
  template <bool kPlain>
  __device__ __forceinline__ void step(int tile, bool first, bool masked) {
    const int number = part.number(tile);
    trace_mark(masked ? "masked" : "full", number);
    tiles.Q_ring.wait_full(at);
    begin_scores<T>(s, tiles.K[warpgroup], tiles.Q[at.stage]);
    const bool extreme = !kPlain && any_extreme(tiles.rows[at.stage]);
    if (first) tiles.V_ring.wait_full(keys());
    tiles.dO_ring.wait_full(at);
    begin_scores<T>(dp, tiles.V[warpgroup], tiles.dO[at.stage]);
    if constexpr (Variant::drops)
      band.template flags_of_keys<Br>(kept, share().work.head + band.member_of(number), a.H, band.tile_of(number) * Br,
                                      first_key + threadIdx.x % 128 / 32 * 16);
    const int my_query = band.tile_of(number) * Br + lane_column(), my_key = first_key + my_row();
    if constexpr (Variant::modifies)
      band.fetch_again(p, share().b, share().h + band.member_of(number), my_query, my_key);
    wgmma_wait<1>(s);  // all but the last: S is there
    if constexpr (Variant::modifies)
      band.template score_again<T, true>(s, p, share().b, share().h + band.member_of(number), my_query, my_key);
    probabilities(s, tiles.rows[at.stage], extreme, a);
    if constexpr (Variant::skips)
      if (masked) find_from(my_key, band.tile_of(number), band);
    if (masked) part.hide(s, from);
    if (band.ends_tile(number)) from[0] += Br, from[1] += Br;
    if constexpr (Variant::modifies) band.template round_and_weigh<T>(p, s);
    if (kEarly) {
      if (!Variant::modifies) round_p<T>(p, s);
      if constexpr (Variant::drops) band.drop_keys(p, kept);
      begin_output<T>(dv, p, tiles.dO[at.stage]);
    }
    wgmma_wait<kEarly>(dp);
    if constexpr (Variant::drops) band.drop_gradient(dp, kept);
    gradients(dp, s, tiles.rows[at.stage]);
    if constexpr (Variant::modifies)
      band.take_gradient(dp, share().b, share().h + band.member_of(number), my_query, my_key);
    if (!kEarly && !Variant::modifies) round_p<T>(p, s);
    if constexpr (Variant::drops && !kEarly) band.drop_keys(p, kept);
    round_p<T>(ds, dp);
    tiles.dS_ring.wait_empty(at);
    store_ds(tiles.dS[at.stage], ds, warpgroup * 64);
    if (!kEarly) begin_output<T>(dv, p, tiles.dO[at.stage]);
    publish(tiles.dS_ring, at);
    begin_output<T>(dk, ds, tiles.Q[at.stage]);
    if (!first && my_turn()) {
      if (kEarly) leave_tile<0>();  // dQ gets the registers of S and dP
      begin_turn();
      if (!kEarly) leave_tile<Br / 64>();  // all but dQ
      finish_product<kPlain>(tile + 1);
      hand_over(tile + 1);
    } else {
      leave_tile<0>();
    }
    if (!first) turn.next();
  }
  // dV and dK of a tile are there; kPending groups of dQ are not.
  template <int kPending>
  __device__ __forceinline__ void leave_tile() {
    wgmma_wait<kPending>(dv, dk, p, ds);
    __syncwarp();  // all lanes have read the numbers of rows
    tiles.dO_ring.release(at), tiles.Q_ring.release(at), at.next();
  }
  // Whose turn is dQ of the tile before? The one's that has the number of this tile's stage.
  __device__ bool my_turn() const {
    return at.stage == warpgroup;
  }
  __device__ __forceinline__ void begin_turn() {
    tiles.dS_ring.wait_full(turn);
#pragma unroll
    for (int i = 0; i < Br / 64; ++i) begin_dq<T>(dq[i], tiles.dS[turn.stage][i], tiles.K, 0);
  }
  // dQ of the block's keys less the centre, by as much as dS's rows miss their sums. A warp has 16 rows of each panel.
  __device__ __forceinline__ void move_to_centre(int tile) {
    const int row = threadIdx.x % 128 / 32 * 16;
#pragma unroll
    for (int i = 0; i < Br / 64; ++i) {
      const phase13::Fragments<64> rows(&tiles, tiles.dS[turn.stage][i], phase13::b_row(), row + phase13::b_column());
      float excess[1][4] = {};
      if (const float* less = part.excess(share(), tile)) {  // the first share: less what the sums are to be
        const int number = part.number(tile);
        less += band.member_of(number) * a.rows + band.tile_of(number) * Br + i * 64 + row + lane_row();
        excess[0][0] = less[0], excess[0][2] = less[8];
      }
#pragma unroll
      for (int key = 0; key < Bc; key += 16) {
        unsigned x[1][4];
        ldmatrix_x4_trans(x[0], rows.at(key, 0));
        phase20::add_row_sums<T>(excess, x);
      }
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        const float2 c = load_two(&tiles.centre[n * 8 + lane_column()]);
        float(&x)[4] = c_fragment(dq[i], n);
        x[0] = fmaf(-excess[0][0], c.x, x[0]), x[1] = fmaf(-excess[0][0], c.y, x[1]);
        x[2] = fmaf(-excess[0][2], c.x, x[2]), x[3] = fmaf(-excess[0][2], c.y, x[3]);
      }
    }
  }
  template <bool kPlain>
  __device__ __forceinline__ void finish_product(int tile) {
    wgmma_wait<0>(dq);
    if (!kPlain && tiles.centre[D] != 0) move_to_centre(tile);
    __syncwarp();  // all lanes have read dS
    tiles.dS_ring.release(turn);
  }
  // dQ of a tile leaves: the block's share, or where it is the last one the sum.
  __device__ __forceinline__ void hand_over(int tile) {
    mbarrier_wait(&tiles.dQ_ring.empty[turn.stage], turn.parity);  // the place is free; others' shares are there
    if (part.ends(share(), tile))
      put_rounded(tile);
    else
      put_share();
    publish(tiles.dQ_ring, turn);
  }
  // The warp's 16 rows of each panel.
  __device__ __forceinline__ auto& my_place(int i) {
    return tiles.dQ[turn.stage][i * 4 + threadIdx.x % 128 / 32];
  }
  __device__ __forceinline__ void put_share() {
#pragma unroll
    for (int i = 0; i < Br / 64; ++i)
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        const float(&x)[4] = c_fragment(dq[i], n);
        my_place(i)[n][threadIdx.x % 32] = make_float4(x[0], x[1], x[2], x[3]);
      }
  }
  // The sum, rounded, where the others' shares were: D / 64 panels of 16 rows.
  __device__ __forceinline__ void put_rounded(int tile) {
    if (part.follows(share(), tile))
#pragma unroll
      for (int i = 0; i < Br / 64; ++i)
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          const float4 sum = my_place(i)[n][threadIdx.x % 32];
          float(&x)[4] = c_fragment(dq[i], n);
          x[0] += sum.x, x[1] += sum.y, x[2] += sum.z, x[3] += sum.w;
        }
    __syncwarp();  // all lanes have read what is overwritten now
    const int row = threadIdx.x % 16, column = threadIdx.x % 32 / 16 * 8;
#pragma unroll
    for (int i = 0; i < Br / 64; ++i) {
      auto& panels = reinterpret_cast<std::uint16_t(&)[D / 64][16][64]>(my_place(i));
#pragma unroll
      for (int d = 0; d < D; d += 16) {
        unsigned packed[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          packed[k] = pack<T>(dq[i][d / 2 + 2 * k] * a.scale, dq[i][d / 2 + 2 * k + 1] * a.scale);
        stmatrix_x4(&panels[d / 64][row][swizzled(row, d % 64 + column)], packed);
      }
    }
  }
  // The last tile's dQ leaves; then dV and dK; scale, once: S = scale · Q Kᵀ.
  __device__ __forceinline__ void finish(const TensorMap* dK_map, const TensorMap* dV_map) {
    if (any() && my_turn()) {
      begin_turn();
      finish_product<false>(range.first);
      hand_over(range.first);
    }
    const auto at = band.all_keys_at(first_key, uniform(share().h) / band.group, uniform(share().b));
    store_tile<T>(dv, {of_kept(band), of_kept(band)}, tiles.V[warpgroup], dV_map, at, warpgroup);
    bar_sync(kOfConsumers, Bc * 2);  // both have read K, in whose place dK goes out
    store_tile<T>(dk, {a.scale, a.scale}, tiles.K[warpgroup], dK_map, at, warpgroup);
    if (any()) turn.next();
    __syncwarp();  // all lanes have read the share
    tiles.share_ring.release(to), to.next();
    if (threadIdx.x % 128 != 0) return;
    cp_async_bulk_wait_read<0>();  // the next share's K and V may come
    mbarrier_arrive(tiles.V_ring.empty), mbarrier_arrive(tiles.K_ring.empty);
  }
};
// #endregion

// #region setup: the barriers
template <class T, int D, int Br, int Bc, class Variant>
__global__ void __launch_bounds__(Bc * 2 + 128, 1)
    keys_backward(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap dO_map,
                  const __grid_constant__ TensorMap K_map, const __grid_constant__ TensorMap V_map,
                  const __grid_constant__ TensorMap dQ_map, const __grid_constant__ TensorMap dK_map,
                  const __grid_constant__ TensorMap dV_map, Backward<T> a,
                  const RowPiece* pieces /*[B * H * padded rows / 64]*/, Variant band, unsigned section, Relay relay) {
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  constexpr int kStages = Tiles<D, Br, Bc>::kStages;
  const int warpgroup = uniform(threadIdx.x / 128);

  if (threadIdx.x == 0) {
    tiles.share_ring.init(Bc / 16 + kStages);                 // warps, and threads
    tiles.K_ring.init(Bc / 64), tiles.V_ring.init(Bc / 64);   // warpgroups
    tiles.Q_ring.init(Bc / 16), tiles.dO_ring.init(Bc / 16);  // warps
    init_handover(tiles.dS_ring, Bc / 16, 4);                 // all write, one warpgroup reads
    init_handover(tiles.dQ_ring, 4, 1);                       // that writes, a thread reads
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there, for TMA too
  // #endregion

  // #region producer: one thread draws shares and loads, others pass dQ on
  if (warpgroup == Bc / 64) {
    setmaxnreg_dec<kProducerRegisters>();
    const int warp = threadIdx.x % 128 / 32;  // a thread of each: none waits where another does
    if (threadIdx.x % 32 == 0 && warp == 0)
      load_shares<Br, Bc>(tiles, &Q_map, &dO_map, &K_map, &V_map, a, pieces, band, section, relay);
    if (threadIdx.x % 32 == 0 && warp > 0 && warp <= kStages) pass_on<Br>(tiles, warp - 1, a, band, relay, &dQ_map);
    return;
  }
  // #endregion

  // #region loop: the consumers, over shares, and of each over the Q tiles that see the keys, from the last one on
  setmaxnreg_inc<kConsumerRegisters>();
  Consumer<T, D, Br, Bc, Variant> consumer(tiles, a, band, warpgroup);
  while (consumer.next_share()) {
    consumer.run();
    consumer.finish(&dK_map, &dV_map);
  }
  wait_for_stores();
}
// #endregion

// #region launch: the host's side: the numbers of rows, then all three gradients
struct Gradients {
  template <int D, int Br, int Bc>
  using Shared = std::conditional_t<D == 256, wide::Tiles, Tiles<D, Br, Bc>>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    if constexpr (D == 256)
      wide::launch(p);
    else
      launch_fused<T, D, Br, Bc>(p);
  }
  template <class T, int D, int Br, int Bc, class Variant = Plain>
  static void launch_fused(const DeviceProblem<T>& p) {
    Backward<T> a = phase20::arguments_of(p);
    const auto floats = [&](int piece) { return static_cast<float*>(p.workspace[piece]); };
    a.row_m = floats(0), a.row_excess = floats(1), a.centre = floats(3), a.dQ_sum = floats(4);
    a.row_inverse_l = a.row_delta = nullptr;  // the pieces have them
    auto* const pieces = static_cast<RowPiece*>(p.workspace[2]);
    auto* const counts = static_cast<unsigned*>(p.workspace[5]);
    const Relay relay{counts, counts + 1, p.mode == Mode::Deterministic};
    const Variant band = Variant::of(p);
    const auto kernel = keys_backward<T, D, Br, Bc, Variant>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const std::int64_t heads = std::int64_t{p.B} * p.H, of_keys = std::int64_t{p.B} * p.Hk;
    const std::int64_t rows = p.band.cuts_left() ? std::min(p.Q.rows, p.band.left + p.band.right + Bc) : p.Q.rows;
    const unsigned section = phase23::heads_in_cache(of_keys, rows * (p.H / p.Hk), D, 32 << 20);
    const auto shares = static_cast<unsigned>((p.K.rows + Bc - 1) / Bc * of_keys);
    const unsigned grid = std::min(shares, static_cast<unsigned>(multiprocessors()));  // blocks that stay
    if (const auto row_blocks = static_cast<unsigned>(heads * a.rows / 64))
      row_pieces<T, D, Br, Variant><<<row_blocks, 256, sizeof(PieceSums<D>), p.stream>>>(a, pieces, relay, band);
    if (grid > 0)
      kernel<<<grid, Bc * 2 + 128, shared_bytes, p.stream>>>(
          map_of_queries(p, p.Q, Br), map_of_queries(p, p.dO, Br), map_of_seen_keys(p, p.K), map_of_seen_keys(p, p.V),
          map_of(p, p.dQ.rows > 0 ? p.dQ : p.dK, p.H, 16), map_of(p, p.dK, p.Hk, 64), map_of(p, p.dV, p.Hk, 64), a,
          pieces, band, section, relay);
  }
};
// #endregion

}  // namespace flash::phase24::inline FLASH_MACHINE
