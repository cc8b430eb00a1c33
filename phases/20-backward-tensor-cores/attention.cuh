// Phase 20: the backward pass on tensor cores. New since 09: the five products are mma's. Two warps share 16 or 32
// keys: one makes P and dV, the other dS and dK. Products are transposed, so that P and dS are operands where they lie.
// Run it: ctest -L phase20     The derivation: docs/backward.md
#pragma once
#include "phases/20-backward-tensor-cores/rows_backward.cuh"
#include "phases/20-backward-tensor-cores/tiles.cuh"  // Tiles, load_rows
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase20::inline FLASH_MACHINE {

// #region warp
// What a warp does with a Q tile. Products are transposed: their rows are keys, their columns queries. C is Sᵀ, then Pᵀ
// in the first four warps; dPᵀ, then dSᵀ in the others.
template <class T, int D, int Br, int Bc, bool kAddQ, class Variant>
struct Warp {
  using L = Layout<D, Br, Bc>;
  static constexpr int kRowTiles = L::kRowTiles, kStep = L::kStep, kSteps = L::kSteps;
  using Product = float[kRowTiles][kStep / 2];

  Tiles<D, Br, Bc>& tiles;
  const Backward<T, Variant>& a;

  unsigned own[kRowTiles][L::kKeepOwn ? D / 16 : 1][4] = {};  // kKeepOwn: the fragments of the warp's keys
  float sum[kRowTiles][D / 2] = {};                           // dV or dK
  unsigned kept[kRowTiles][1] = {};                           // with dropout: which numbers of P are

  static __device__ bool makes_p() { return threadIdx.x < 128; }
  // Functions, not members: they cost no registers.
  __device__ std::int64_t first_key() const { return std::int64_t{a.band.kv_tile()} * Bc; }  // of the K/V tile
  static __device__ int pair() { return threadIdx.x / 32 % 4; }
  static __device__ int warp_key() { return pair() * L::kKeys; }
  // #endregion

  // #region product
  // The warp's rows of K or V.
  __device__ Fragments<D> own_rows() const {
    return {&tiles, makes_p() ? tiles.K : tiles.V, warp_key() + a_row(), a_column()};
  }
  __device__ void begin() {
    if constexpr (L::kKeepOwn) {
      const Fragments<D> rows = own_rows();
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
        for (int d = 0; d < D; d += 16) ldmatrix_x4(own[rt][d / 16], rows.at(rt * 16, d));
    }
  }
  // Sᵀ = K Qᵀ or dPᵀ = V dOᵀ: all of the warp's keys, the queries of a step.
  __device__ void product(Product& c, int stage, int step) {
    const Fragments<D> streamed(&tiles, makes_p() ? tiles.Q[stage] : tiles.dO[stage], b_row(), b_column());
    if constexpr (L::kKeepOwn)
      add_product_of_kept<T, D>(c, own, streamed, step * kStep);
    else
      add_product<T, D>(c, own_rows(), streamed, step * kStep);
  }
  // dV += Pᵀ dO or dK += dSᵀ Q.
  __device__ void add_gradient(const unsigned (&c)[kRowTiles][kStep / 16][4], int stage, int step) {
    const Fragments<D> streamed(&tiles, makes_p() ? tiles.dO[stage] : tiles.Q[stage], a_row(), a_column());
    add_product_of_registers<T, D>(sum, c, streamed, step * kStep);
  }
  // #endregion

  // #region elements
  // 0 where the query does not see the key, by selection. Queries are counted from `first_row`, so that int holds them.
  __device__ void mask(Product& c, std::int64_t first_row) const {
    if constexpr (Variant::windows) hide_later_queries(c, a.band, first_key() + warp_key() + lane_row(), first_row);
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) {
      int from[2];  // the first query that sees the key, from the lane's first column on
      for (int r = 0; r < 2; ++r) {
        const std::int64_t key = first_key() + warp_key() + 16 * rt + 8 * r + lane_row();
        const std::int64_t first = key < a.K.rows ? key - a.band.right - first_row : kStep;
        from[r] = static_cast<int>(max(min(first, std::int64_t{kStep}), std::int64_t{0})) - lane_column();
      }
#pragma unroll
      for (int i = 0; i < kStep / 2; ++i) c[rt][i] = column_of(i) < from[row_of(i)] ? 0.0f : c[rt][i];
    }
  }

  // Calls f(four numbers of the product, the query of the first, where they are exchanged).
  template <class F>
  __device__ void for_each_four(Product& c, int step, const F& f) {
#pragma unroll
    for (int n = 0; n < kStep / 8; ++n)
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt)
        f(c_fragment(c[rt], n), step * kStep + n * 8 + lane_column(),
          tiles.P[pair()][step][rt * (kStep / 8) + n][threadIdx.x % 32]);
  }

  // P from S.
  __device__ void probabilities(Product& s, int stage, int step) {
    const auto& rows = tiles.rows[stage];
    for_each_four(s, step, [&](float(&x)[4], int query, float4&) {
      const float2 m = load_two(&rows.m[query]), inverse_l = load_two(&rows.inverse_l[query]);
      x[0] = p_again(x[0], a.scale_log2, m.x, inverse_l.x), x[1] = p_again(x[1], a.scale_log2, m.y, inverse_l.y);
      x[2] = p_again(x[2], a.scale_log2, m.x, inverse_l.x), x[3] = p_again(x[3], a.scale_log2, m.y, inverse_l.y);
    });
  }
  // P to the warp with the same keys.
  __device__ void hand_over(Product& p, int step) {
    for_each_four(p, step, [](float(&x)[4], int, float4& to) { to = make_float4(x[0], x[1], x[2], x[3]); });
    bar_arrive(barrier(step), 64);  // P is there
  }
  // dS = P ∘ (dP - δ), with that P.
  __device__ void gradients(Product& dp, int stage, int step) {
    const auto& rows = tiles.rows[stage];
    bar_sync(barrier(step), 64);  // P is there
    for_each_four(dp, step, [&](float(&x)[4], int query, float4& from) {
      const float2 delta = load_two(&rows.delta[query]);
      float4 p = from;
      if constexpr (Variant::drops) a.band.drop_marked(x, p);
      x[0] = p.x * (x[0] - delta.x), x[1] = p.y * (x[1] - delta.y);
      x[2] = p.z * (x[2] - delta.x), x[3] = p.w * (x[3] - delta.y);
    });
  }
  static __device__ int barrier(int step) {
    return 1 + pair() * kSteps + step;
  }
  static __device__ float2 load_two(const float* p) {
    return *reinterpret_cast<const float2*>(p);
  }
  // #endregion

  // #region dropout: P goes to the other warp with a sign where it is left out (phase 29)
  __device__ void draw_kept(std::int64_t first_row, std::int64_t head) {
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
      if constexpr (Variant::drops)
        if (makes_p())
          a.band.template flags_of_keys<kStep>(kept[rt], head, a.H, first_row, first_key() + warp_key() + 16 * rt);
  }
  __device__ void mark_dropped(Product& p) const {
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
      if constexpr (Variant::drops)
        if (makes_p()) a.band.mark(p[rt], kept[rt]);
  }
  __device__ void drop(Product& p) const {
#pragma unroll
    for (int i = 0; Variant::drops && i < kRowTiles * kStep / 2; ++i)
      if (float& x = p[i / (kStep / 2)][i % (kStep / 2)]; makes_p() && __float_as_int(x) < 0) x = 0;
  }
  // #endregion

  // #region dq
  // dSᵀ, rounded, for all warps: dQ sums over the keys of all of them.
  __device__ void store_ds(const unsigned (&ds)[kRowTiles][kStep / 16][4], int stage, int step) {
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
      for (int i = 0; i < kStep / 4; ++i) {
        const int row = warp_key() + 16 * rt + 8 * row_of(2 * i) + lane_row();
        const int column = step * kStep + column_of(2 * i) + lane_column();
        store2(&tiles.dS[stage][row][swizzled(row, column)], ds[rt][i / 4][i % 4]);
      }
  }
  // The warp's rectangle of dQ = dS K, added to what other blocks add: dS is read transposed.
  __device__ void add_dq(float* head_sum, float* head_excess, int tile, int stage) {
    constexpr int kRows = L::kRowsOfDQ, kColumns = L::kColumnsOfDQ, kTiles = kRows / 16, kGroups = Br / kRows;
    const int warp = threadIdx.x / 32, row = warp % kGroups * kRows, column = warp / kGroups * kColumns;
    const Fragments<Tiles<D, Br, Bc>::kPitch> ds_rows(&tiles, tiles.dS[stage], b_row(), row + b_column());
    const Fragments<D> k_rows(&tiles, tiles.K, a_row(), column + a_column());
    float dq[kTiles][kColumns / 2] = {}, excess[kTiles][4] = {};
#pragma unroll
    for (int key = 0; key < Bc; key += 16) {
      unsigned ds[kTiles][4];
#pragma unroll
      for (int rt = 0; rt < kTiles; ++rt) ldmatrix_x4_trans(ds[rt], ds_rows.at(key, rt * 16));
      if (key / 16 % (8 / kGroups) == warp / kGroups) add_row_sums<T>(excess, ds);  // so many warps have these rows
#pragma unroll
      for (int n = 0; n < kColumns / 8; n += 2) {
        unsigned k[4];
        ldmatrix_x4_trans(k, k_rows.at(key, n * 8));
#pragma unroll
        for (int rt = 0; rt < kTiles; ++rt) {
          mma_m16n8k16<T>(c_fragment(dq[rt], n), ds[rt], {k[0], k[1]}, c_fragment(dq[rt], n));
          mma_m16n8k16<T>(c_fragment(dq[rt], n + 1), ds[rt], {k[2], k[3]}, c_fragment(dq[rt], n + 1));
        }
      }
    }
    float* fragment = dq_fragment<D>(head_sum, std::int64_t{tile} * Br + row, column);
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n)
        add_fragment(dq_fragment<D>(fragment, rt * 16, n * 8), c_fragment(dq[rt], n));
    if (threadIdx.x % 4 == 0)  // four lanes have the same sums
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i)
        atomicAdd(&head_excess[std::int64_t{tile} * Br + row + 8 * i + lane_row()], excess[i / 2][i % 2 * 2]);
  }
  // #endregion

  // #region multiply
  // A Q tile: its share of dV and dK, and dS for dQ. masked: some row may not see all keys.
  __device__ void multiply(int tile, int stage, bool masked, std::int64_t head) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Product c = {};
      unsigned rounded[kRowTiles][kStep / 16][4];
      draw_kept(std::int64_t{tile} * Br + step * kStep, head);
      product(c, stage, step);
      if constexpr (Variant::modifies)
        if (makes_p())
          a.band.template scores_again<T>(c, rounded, head / a.H, head % a.H, std::int64_t{tile} * Br + step * kStep,
                                          first_key() + warp_key());
      if (makes_p())
        probabilities(c, stage, step);
      else
        gradients(c, stage, step);
      if (masked) mask(c, std::int64_t{tile} * Br + step * kStep);
      if constexpr (Variant::modifies)
        if (makes_p()) a.band.template round_and_weigh<T>(rounded, c);
      mark_dropped(c);
      if (makes_p()) hand_over(c, step);
      drop(c);
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt)
        if (!Variant::modifies || !makes_p()) round_p<T>(rounded[rt], c[rt]);
      if (kAddQ && !makes_p()) store_ds(rounded, stage, step);
      add_gradient(rounded, stage, step);
    }
  }
  // #endregion

  // #region store
  // dV through the rows of Q and dO, or dK through the warp's rows of V: nobody reads these any more.
  __device__ void store(const Head<T>& to, float factor) {
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
#pragma unroll
      for (float& x : sum[rt]) x *= factor;
    auto& rows = makes_p() ? reinterpret_cast<std::uint16_t(&)[Bc][D]>(tiles.Q) : tiles.V;
    phase13::put_rows<pack<T>>(sum, rows, warp_key());
    phase13::store_rows<L::kKeys>(rows, warp_key(), to, first_key());
  }
  // #endregion
};

// #region keys-backward
// dK and dV of a K/V tile; with kAddQ its share of dQ, a Q tile later: when dS of all warps is there. Where several
// heads of Q meet the keys, the Q tiles of one come behind those of the other, and dK and dV go on (phase 25).
template <class T, int D, int Br, int Bc, bool kAddQ, class Variant>
__global__ void __launch_bounds__(256, 1) keys_backward(Backward<T, Variant> a) {
  static_assert(sizeof(Tiles<D, Br, Bc>::Q) >= sizeof(Tiles<D, Br, Bc>::V), "dV goes out through Q");
  Tiles<D, Br, Bc>& tiles = shared<Tiles<D, Br, Bc>>();
  std::int64_t key_head = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y;
  const std::int64_t Hk = a.H / a.band.group;
  if constexpr (Variant::lengths)
    if (!a.band.template enter_keys<D>(a, key_head)) return;
  const std::int64_t b = key_head / Hk, h = key_head % Hk;
  if (b >= a.B) return;
  Warp<T, D, Br, Bc, kAddQ, Variant> warp{tiles, a};
  const std::int64_t first_key = warp.first_key();

  // Q tiles from the one with the first row that sees the first key; those before `full` are seen in part, and all of
  // them where the K/V tile is not whole.
  const auto tile_of = [](std::int64_t row) { return static_cast<int>(max(row, std::int64_t{0}) / Br); };
  const std::int64_t last_key = first_key + Bc - 1;
  const int first = tile_of(first_key - a.band.right);
  int end = tile_of(a.Q.rows + Br - 1);
  const int full = last_key >= a.K.rows ? end : tile_of(last_key - a.band.right + Br - 1);
  if constexpr (Variant::windows) end = min(end, end_of_queries(a.band, first_key, Br, Bc));
  const int of_head = max(end - first, 0);  // Q tiles of a head
  int steps = of_head * a.band.group;       // and of all
  const int* list = nullptr;                // skips: those that there are
  if constexpr (Variant::skips)
    list = a.band.list_of_keys(static_cast<int>(b), static_cast<int>(h), a.band.kv_tile()), steps = list[0];
  const auto head_of = [&](int step) {
    if (Variant::skips) return key_head * a.band.group + a.band.member_of(list[2 + 2 * step]);
    return key_head * a.band.group + (Variant::groups ? step / of_head : 0);
  };
  const auto tile_at = [&](int step) {
    if (Variant::skips) return a.band.tile_of(list[2 + 2 * step]);
    return first + (Variant::groups ? step % of_head : step);
  };
  const auto begin_copies = [&](int step) {
    const std::int64_t head = head_of(step), first_row = std::int64_t{tile_at(step)} * Br,
                       row = head * a.rows + first_row;
    load_tile<false, 256>(tiles.Q[step % 2], a.Q.head(head / a.H, head % a.H), first_row, a.Q.rows);
    load_tile<false, 256>(tiles.dO[step % 2], a.dO.head(head / a.H, head % a.H), first_row, a.Q.rows);
    load_rows<Br>(tiles.rows[step % 2], a.row_m + row, a.row_inverse_l + row, a.row_delta + row);
    cp_async_commit();
  };
  const auto add_dq = [&](int step) {
    const std::int64_t row = head_of(step) * a.rows;
    warp.add_dq(a.dQ_sum + row * D, a.row_excess + row, tile_at(step), step % 2);
  };
  using Seen = decltype(a.band.keys_for(0, 0));
  const Seen keys = a.Q.rows > 0 ? a.band.keys_for(0, a.Q.rows - 1) : Seen{};  // that some row sees; others are zeros
  load_tile<false, 256>(tiles.K, a.K.head(b, h), first_key, keys);
  load_tile<false, 256>(tiles.V, a.V.head(b, h), first_key, keys);
  cp_async_commit();
  if (steps > 0) begin_copies(0);

#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int tile = tile_at(step);
    bool masked = tile < full;
    if constexpr (Variant::windows) masked |= a.band.begin(std::int64_t{tile} * Br + Br - 1) > first_key;
    trace_mark(masked ? "masked" : "full", tile);
    cp_async_wait<0>();
    __syncthreads();  // all threads' copies and dS are there; all have read the other stage, which the next ones fill
    if (step + 1 < steps) begin_copies(step + 1);
    if (step == 0) warp.begin();
    // The warps that wait for P begin with dQ, the others end with it.
    if (kAddQ && step > 0 && !warp.makes_p()) add_dq(step - 1);
    warp.multiply(tile, step % 2, masked, head_of(step));
    if (kAddQ && step > 0 && warp.makes_p()) add_dq(step - 1);
  }
  cp_async_wait<0>();
  __syncthreads();  // the last dS is there; all have read Q and dO, and no copy of V is under way
  if (kAddQ && steps > 0) add_dq(steps - 1);

  // scale, once: dS is the gradient of S = scale · Q Kᵀ.
  if (warp.makes_p())
    warp.store(a.dV.head(b, h), of_kept(a.band));
  else
    warp.store(a.dK.head(b, h), a.scale);
}
// #endregion

// #region host
// The host's side: the numbers of rows; dK and dV; dQ. Atomic: the second makes all three, the last rounds dQ.
struct Gradients {
  template <int D, int Br, int Bc>
  using Shared = std::conditional_t<(sizeof(Tiles<D, Br, Bc>) > sizeof(RowsTiles<D>)), Tiles<D, Br, Bc>, RowsTiles<D>>;

  template <class T, int D, int Br, int Bc, class Variant = PlainOf<std::int64_t>>
  static void launch(const DeviceProblem<T>& p) {
    const Backward<T, Variant> a = arguments_of<Variant>(p);
    const auto keys_kernel =
        a.dQ_sum ? keys_backward<T, D, Br, Bc, true, Variant> : keys_backward<T, D, Br, Bc, false, Variant>;
    allow_shared_memory(keys_kernel, sizeof(Tiles<D, Br, Bc>));
    launch_row_terms<D>(p, a);
    if (p.K.rows > 0)
      keys_kernel<<<grid_of(p.K.rows, Bc, std::int64_t{p.B} * p.Hk), 256, sizeof(Tiles<D, Br, Bc>), p.stream>>>(a);
    launch_dq<D>(p, a);
  }
};
// #endregion

}  // namespace flash::phase20::inline FLASH_MACHINE
