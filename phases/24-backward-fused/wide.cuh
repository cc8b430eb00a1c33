// wide.cuh: phase 24's kernel for D = 256. Registers hold dV and dK of 64 keys: one warpgroup makes P and dV, the other
// dS and dK. Two blocks of a cluster share each Q tile and the work of dQ: half of its columns each, of both's keys.
// Use: wide::launch(p);
#pragma once
#include "phases/17-persistent/schedule.cuh"  // store_tile, wait_for_stores
#include "phases/23-backward-turns/pieces.cuh"

namespace flash::phase24::wide::inline FLASH_MACHINE {

// #region wide-tiles: shared memory of a block, and its barriers
using phase23::RowPiece;
constexpr int kD = 256, kBr = 64, kBc = 128, kStages = 2;  // two blocks have 64 keys each
struct Tiles {
  alignas(1024) std::uint16_t K[4][64][64];            // of the block's keys
  alignas(1024) std::uint16_t K_other[2][64][64];      // of the other block's: the columns of which dQ is made here
  alignas(1024) std::uint16_t V[2][64][64];            // columns 0 … 127; the others are in registers
  alignas(1024) std::uint16_t Q[kStages][4][64][64];   // in the end dV, on its way out
  alignas(1024) std::uint16_t dO[kStages][4][64][64];  // likewise dK
  alignas(1024) std::uint16_t dS[kStages][1][64][64];  // Pᵀ, then dSᵀ in its place; at first columns 128 … 255 of V
  alignas(1024) std::uint16_t dS_other[kStages][64][64];  // the other block's dSᵀ
  RowPiece rows[kStages][1];
  // barrier          who arrives                     how many      who waits              for what
  // K_full, V_full   the loading thread              1, and bytes  consumers, once        K is there, or V
  // Q_full, dO_full  the loading thread              1, and bytes  consumers              Q, its rows' numbers, or dO
  // Q_empty          a lane of each consumer's warp  16, of both   the loading thread     both have read Q and dO
  // P_full           a lane of its warps             4             who makes dS           P is there
  // dS_full          a lane of its warps             4             consumers, who sends   dS is there
  // other_full       the sending thread              1, and bytes  consumers, before dQ   the other block's dS is there
  // dS_empty         a lane of each consumer's warp  16, of both   who makes P            both have made dQ of it
  //                  without dQ: of who makes dS     4                                    dS has been made of P
  std::uint64_t K_full, V_full, Q_full[kStages], dO_full[kStages], Q_empty[kStages];
  std::uint64_t P_full[kStages], dS_full[kStages], dS_empty[kStages], other_full[kStages];
};
constexpr int kOfConsumers = 3;  // a named barrier; 1 and 2 are store_tile's

// Registers per thread: the block is launched with 168 for each; 128 · (2 · 240 + 24) are no more than 384 · 168.
constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;

// A warp's lane tells the barrier what all of its lanes have done.
__device__ __forceinline__ void tell(std::uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
}
// Two lanes tell the same barrier of both blocks that all of its lanes have read what the barrier is about.
__device__ __forceinline__ void tell_both(std::uint64_t* barrier) {
  if (threadIdx.x % 32 < 2) mbarrier_arrive_cluster_relaxed(barrier, threadIdx.x % 32);
}
__device__ inline void barrier_of_blocks() {
  barrier_cluster_arrive();
  barrier_cluster_wait();
}
// Where a lane's row of 16 x 16 numbers begins, of the warp's 16 rows: for ldmatrix and stmatrix.
__device__ __forceinline__ std::uint16_t* fragment_of(std::uint16_t (&panel)[64][64], int column) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
  return &panel[row][swizzled(row, column + lane / 16 * 8)];
}
// P goes from one warpgroup to the other as fp16, times 2^15: it has 11 bits down to 2^-29, and fits.
constexpr float kRaise = 0x1p15f, kLower = 0x1p-15f;
// #endregion

// #region consumer: what a thread holds of the block's 64 keys, and what it does with a Q tile
template <class T, bool kAddQ>
struct Consumer {
  Tiles& tiles;
  const Backward<T>& a;
  const int warpgroup, rank;
  std::int64_t row;  // of all heads' padded ones: the warp's first, of the tile whose dQ is next
  int from[2];  // the first queries that see the lane's two keys, counted from the lane's first column of the next tile

  float sum[kD / 2] = {};         // dV or dK, of 64 keys
  float x[kBr / 2];               // Sᵀ, then Pᵀ; or dPᵀ, then dSᵀ
  float dq[32];                   // 64 queries, 64 columns
  unsigned rounded[kBr / 16][4];  // Pᵀ or dSᵀ, as left operands
  unsigned kept[8][4];            // of K or V columns 128 … 255, as left operands
  Cursor<kStages> at;             // of the tile

  __device__ Consumer(Tiles& tiles, const Backward<T>& a, int warpgroup, int rank, std::int64_t head_row, int first_row,
                      int first_key, const Band<int>& band)
      : tiles(tiles), a(a), warpgroup(warpgroup), rank(rank) {
    const int warp_row = threadIdx.x % 128 / 32 * 16, my_key = first_key + warp_row + lane_row();
    row = head_row + first_row + warp_row;
    for (int r = 0; r < 2; ++r) from[r] = first_query(my_key + 8 * r, band) - first_row - lane_column();
  }
  // One warpgroup makes P and dV, the other dS and dK. The first tile is peeled: no dQ of one before is to be made.
  template <bool kMakesP>
  __device__ __forceinline__ void run(const QueryRange& range) {
    int masked = range.full - range.first;
    step<kMakesP, false>(range.first, masked > 0);
#pragma unroll 1
    for (int tile = range.first + 1; tile < range.end; ++tile) step<kMakesP, kAddQ>(tile, --masked > 0);
    if (!kAddQ) return;
    begin_dq();  // the last tile's
    if (!kMakesP) add_sums();
    wgmma_wait<0>(dq);
    finish_dq();
  }
  template <bool kMakesP>
  __device__ __forceinline__ void keep() {
    mbarrier_wait(kMakesP ? &tiles.K_full : &tiles.V_full, 0);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      ldmatrix_x4(kept[i], fragment_of(kMakesP ? tiles.K[2 + i / 4] : tiles.dS[i / 4][0], i % 4 * 16));
  }
  template <bool kMakesP, bool kTurn>
  __device__ __forceinline__ void step(int tile, bool masked) {
    trace_mark(masked ? "masked" : "full", tile);
    mbarrier_wait(&tiles.Q_full[at.stage], at.parity);
    if constexpr (kMakesP)
      make_p(masked);
    else
      make_ds<kTurn>();
    add_gradient<kTurn>(kMakesP ? tiles.dO[at.stage] : tiles.Q[at.stage]);
  }
  // Pᵀ, for dV and for the other warpgroup.
  __device__ __forceinline__ void make_p(bool masked) {
    begin_product(tiles.K, tiles.Q[at.stage]);
    const bool extreme = phase23::any_extreme(tiles.rows[at.stage]);
    wgmma_wait<0>(x);
    phase23::probabilities(x, tiles.rows[at.stage], extreme, a);
    if (masked) hide_queries(x, from);
    from[0] -= kBr, from[1] -= kBr;
    round_p<T>(rounded, x);
#pragma unroll
    for (float& p : x) p *= kRaise;
    unsigned raised[kBr / 16][4];
    round_p<__half>(raised, x);
    mbarrier_wait_cluster(&tiles.dS_empty[at.stage], at.parity ^ 1);
    store_ds(tiles.dS[at.stage], raised, 0);
    tell(&tiles.P_full[at.stage]);
    mbarrier_wait(&tiles.dO_full[at.stage], at.parity);
  }
  // dSᵀ = Pᵀ ∘ (dPᵀ - δ), for dK and, in the place of P, for dQ.
  template <bool kTurn>
  __device__ __forceinline__ void make_ds() {
    mbarrier_wait(&tiles.dO_full[at.stage], at.parity);
    begin_product(tiles.V, tiles.dO[at.stage]);
    if (kTurn) add_sums();
    wgmma_wait<0>(x);
    mbarrier_wait(&tiles.P_full[at.stage], at.parity);
#pragma unroll
    for (int k = 0; k < kBr / 16; ++k) {
      unsigned p[4];
      ldmatrix_x4(p, fragment_of(tiles.dS[at.stage][0], k * 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 delta = load_two(&tiles.rows[at.stage][0].delta[(2 * k + i / 2) * 8 + lane_column()]);
        const float2 raised = unpack<__half>(p[i]);
        const float left = fmaf(x[8 * k + 2 * i], kLower, -delta.x * kLower);
        const float right = fmaf(x[8 * k + 2 * i + 1], kLower, -delta.y * kLower);
        rounded[k][i] = pack<T>(raised.x * left, raised.y * right);
      }
    }
    if (!kAddQ) return tell(&tiles.dS_empty[at.stage]);
    __syncwarp();  // all lanes have read P
    store_ds(tiles.dS[at.stage], rounded, 0);
    fence_proxy_async();  // wgmma and the copy to the other block are to see it
    tell(&tiles.dS_full[at.stage]);
  }
  // Begins Sᵀ = K Qᵀ or dPᵀ = V dOᵀ: of K or V columns 0 … 127 are in shared memory, the others in registers.
  __device__ __forceinline__ void begin_product(const std::uint16_t (*own)[64][64],
                                                const std::uint16_t (&streamed)[4][64][64]) {
    const MatrixDescriptor left = matrix_descriptor(own), right = matrix_descriptor(streamed);
    const auto at_column = [](int d) { return static_cast<unsigned>(d / 64 * sizeof *own + d % 64 * 2); };
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < 128; d += 16) wgmma_m64nNk16<T>(x, left + at_column(d), right + at_column(d), d != 0);
#pragma unroll
    for (int d = 128; d < 256; d += 16) wgmma_m64nNk16<T>(x, kept[d / 16 - 8], right + at_column(d), true);
    wgmma_commit();
  }
  // dV += Pᵀ dO or dK += dSᵀ Q; before it dQ of the tile before, which takes over the registers of S or dP, and leaves
  // while wgmma goes on. Then Q and dO may go.
  template <bool kTurn>
  __device__ __forceinline__ void add_gradient(const std::uint16_t (&streamed)[4][64][64]) {
    if constexpr (kTurn) begin_dq();
    begin_output<T>(sum, rounded, streamed);
    if constexpr (kTurn) {
      wgmma_wait<1>(dq);  // all but the last: dQ is there
      finish_dq();
    }
    wgmma_wait<0>(sum, rounded);
    __syncwarp();  // all lanes have read the numbers of rows
    tell_both(&tiles.Q_empty[at.stage]), at.next();
  }
  // Begins dQ = dS K of the tile before: 64 queries, 64 columns, the keys of both blocks.
  __device__ __forceinline__ void begin_dq() {
    const Cursor<kStages> before = this->before();
    mbarrier_wait(&tiles.dS_full[before.stage], before.parity);
    mbarrier_wait(&tiles.other_full[before.stage], before.parity);
    const MatrixDescriptor ds[2] = {matrix_descriptor(tiles.dS[before.stage]),
                                    matrix_descriptor(tiles.dS_other[before.stage])};
    const MatrixDescriptor k[2] = {matrix_descriptor(tiles.K[2 * rank + warpgroup]),
                                   matrix_descriptor(tiles.K_other[warpgroup])};
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 128; i += 16)
      wgmma_m64nNk16<T, Major::MN, Major::MN>(dq, ds[i / 64] + i % 64 * 128, k[i / 64] + i % 64 * 128, i != 0);
    wgmma_commit();
  }
  // What rows of dS of the tile before sum to, over this block's keys: a warp adds up 16 rows. Lanes of four have the
  // same sums.
  __device__ __forceinline__ void add_sums() {
    mbarrier_wait(&tiles.dS_full[before().stage], before().parity);
    const int column = threadIdx.x % 128 / 32 * 16 + phase13::b_column();
    const phase13::Fragments<64> rows(&tiles, tiles.dS[before().stage][0], phase13::b_row(), column);
    float sums[1][4] = {};
#pragma unroll
    for (int key = 0; key < 64; key += 16) {
      unsigned ds[1][4];
      ldmatrix_x4_trans(ds[0], rows.at(key, 0));
      phase20::add_row_sums<T>(sums, ds);
    }
    float* const to = a.row_excess + row + lane_row();
    if (threadIdx.x % 4 == 0) atomicAdd(to, sums[0][0]), atomicAdd(to + 8, sums[0][2]);
  }
  // dQ is there: dS may go, and dQ to the sum.
  __device__ __forceinline__ void finish_dq() {
    __syncwarp();  // all lanes have read dS
    tell_both(&tiles.dS_empty[before().stage]);
    float* const to = phase20::dq_fragment<kD>(a.dQ_sum, row, rank * 128 + warpgroup * 64);
#pragma unroll
    for (int n = 0; n < 8; ++n) phase20::add_fragment(phase20::dq_fragment<kD>(to, 0, n * 8), c_fragment(dq, n));
    row += kBr;
  }
  __device__ Cursor<kStages> before() const {
    return {at.stage ^ 1, at.parity ^ (at.stage ^ 1u)};
  }
};
// #endregion

// #region setup: whose keys, and the barriers
template <class T, bool kAddQ>
__global__ void __cluster_dims__(2) __launch_bounds__(384, 1)
    keys_backward(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap dO_map,
                  const __grid_constant__ TensorMap K_map, const __grid_constant__ TensorMap V_map,
                  const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map, Backward<T> a,
                  const RowPiece* pieces /*[B * H * padded rows / 64]*/, Band<int> band, unsigned section) {
  Tiles& tiles = shared<Tiles>();
  const int rank = static_cast<int>(cluster_ctarank()), other = rank ^ 1;
  const KeyWork work = phase23::keys_of_section(a.B * a.H, section, 2);
  const int b = work.head / a.H, h = work.head % a.H, first_key = work.kv_tile * kBc + rank * 64;
  const QueryRange range = query_range<kBr, kBc>(work.kv_tile * kBc, band);
  const int warpgroup = uniform(threadIdx.x / 128);

  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.K_full, 1), mbarrier_init(&tiles.V_full, 1);
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&tiles.Q_full[i], 1), mbarrier_init(&tiles.dO_full[i], 1), mbarrier_init(&tiles.Q_empty[i], 16);
      mbarrier_init(&tiles.P_full[i], 4), mbarrier_init(&tiles.dS_full[i], 4);
      mbarrier_init(&tiles.dS_empty[i], kAddQ ? 16 : 4), mbarrier_init(&tiles.other_full[i], 1);
    }
    fence_mbarrier_init();
  }
  barrier_of_blocks();  // the barriers of both blocks are there, for TMA too
  // #endregion

  // #region producer: one thread loads, another sends dS to the other block
  const int count = range.end - range.first;  // of Q tiles
  if (warpgroup == 2) {
    setmaxnreg_dec<kProducerRegisters>();
    Cursor<kStages> at;
    if (threadIdx.x % 128 == 0 && count > 0) {
      const RowPiece* piece = pieces + work.head * static_cast<int>(a.rows / 64) + range.first;
      mbarrier_arrive_expect_tx(&tiles.K_full, sizeof tiles.K + (kAddQ ? sizeof tiles.K_other : 0));
      load_tile(tiles.K, &K_map, &tiles.K_full, first_key, h, b);
      for (int i = 0; kAddQ && i < 2; ++i)
        cp_async_bulk_tensor(tiles.K_other[i], &K_map, &tiles.K_full, 64 * (2 * rank + i),
                             first_key + (other - rank) * 64, h, b);
      // A block loads half of a tile's columns for both.
      const auto load_half = [&](auto& tile, const TensorMap* map, std::uint64_t* full, int row) {
#pragma unroll
        for (int i = 2 * rank; i < 2 * rank + 2; ++i)
          cp_async_bulk_tensor_multicast(tile[i], map, full, 64 * i, row, h, b, 3);
      };
#pragma unroll 1
      for (int tile = range.first; tile < range.end; ++tile, ++piece, at.next()) {
        std::uint64_t *const Q_full = &tiles.Q_full[at.stage], *const dO_full = &tiles.dO_full[at.stage];
        mbarrier_wait_cluster(&tiles.Q_empty[at.stage], at.parity ^ 1);
        mbarrier_arrive_expect_tx(Q_full, sizeof tiles.Q[0] + sizeof tiles.rows[0]);
        load_half(tiles.Q[at.stage], &Q_map, Q_full, tile * kBr);
        cp_async_bulk(tiles.rows[at.stage], piece, sizeof tiles.rows[0], Q_full);
        if (tile == range.first) {  // S comes first, which needs Q
          mbarrier_arrive_expect_tx(&tiles.V_full, sizeof tiles.V + sizeof tiles.dS);
          load_tile(tiles.V, &V_map, &tiles.V_full, first_key, h, b);
          for (int i = 0; i < 2; ++i)
            cp_async_bulk_tensor(tiles.dS[i], &V_map, &tiles.V_full, 128 + 64 * i, first_key, h, b);
        }
        mbarrier_arrive_expect_tx(dO_full, sizeof tiles.dO[0]);
        load_half(tiles.dO[at.stage], &dO_map, dO_full, tile * kBr);
      }
    } else if (kAddQ && threadIdx.x % 128 == 32) {
#pragma unroll 1
      for (int i = 0; i < count; ++i, at.next()) {
        // Behind dS of this tile other_full's phase before is over: dQ of that tile has been begun.
        mbarrier_wait(&tiles.dS_full[at.stage], at.parity);
        mbarrier_arrive_expect_tx(&tiles.other_full[at.stage], sizeof tiles.dS_other[0]);
        cp_async_bulk_cluster(mapa(&tiles.dS_other[at.stage], other), &tiles.dS[at.stage], sizeof tiles.dS[0],
                              mapa(&tiles.other_full[at.stage], other));
      }
    }
    return barrier_of_blocks();  // the other block tells no barrier here any more, and sends nothing
  }
  // #endregion

  // #region loop: the consumers, over the Q tiles that see the keys
  setmaxnreg_inc<kConsumerRegisters>();
  Consumer<T, kAddQ> consumer(tiles, a, warpgroup, rank, work.head * a.rows, range.first * kBr, first_key, band);
  const bool makes_p = warpgroup == 0;
  if (count > 0) {
    mbarrier_wait(&tiles.K_full, 0);
    makes_p ? consumer.template keep<true>() : consumer.template keep<false>();
    bar_sync(kOfConsumers, 256);  // P may take the place of V, which has been read
    if (makes_p)
      consumer.template run<true>(range);
    else
      consumer.template run<false>(range);
  }
  // #endregion

  // #region store: dV and dK; scale, once: dS is the gradient of S = scale · Q Kᵀ
  bar_sync(kOfConsumers, 256);  // both have read Q and dO, in whose places dV and dK go out
  const float factor = makes_p ? 1 : a.scale;
  store_tile<T>(consumer.sum, {factor, factor}, makes_p ? tiles.Q[0] : tiles.dO[0], makes_p ? &dV_map : &dK_map,
                first_key, h, b, warpgroup);
  wait_for_stores();
  barrier_of_blocks();  // as above
}

template <class T>
void launch(const DeviceProblem<T>& p) {
  Backward<T> a = phase20::arguments_of(p);
  a.off_centre = static_cast<int*>(p.workspace[7]);
  auto* const pieces = static_cast<RowPiece*>(p.workspace[6]);
  const auto kernel = a.dQ_sum ? keys_backward<T, true> : keys_backward<T, false>;
  allow_shared_memory(kernel, sizeof(Tiles));
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  const unsigned section = p.band.cuts_right() ? phase23::section_of_keys(heads, p.Q.rows, p.K.rows, kD) : 0;
  const auto row_blocks = static_cast<unsigned>(heads * a.rows / 64);
  const auto grid = static_cast<unsigned>((p.K.rows + kBc - 1) / kBc * heads * 2);
  if (row_blocks > 0)
    phase23::row_pieces<T, kD><<<row_blocks, 256, sizeof(phase23::PieceSums<kD>), p.stream>>>(a, pieces);
  if (grid > 0)
    kernel<<<grid, 384, sizeof(Tiles), p.stream>>>(
        map_of_queries(p, p.Q, kBr), map_of_queries(p, p.dO, kBr), map_of_seen_keys(p, p.K), map_of_seen_keys(p, p.V),
        map_of(p.dK, p.B, p.H, 64), map_of(p.dV, p.B, p.H, 64), a, pieces, narrow(p.band), section);
  phase20::launch_dq<kD>(p, a);
}
// #endregion

}  // namespace flash::phase24::wide::inline FLASH_MACHINE
