// rows_backward.cuh: dQ in a pass of its own, for the deterministic mode: a block owns a Q tile and walks over the K/V
// tiles, as the forward pass does; P and dS are made again. No two blocks add to the same number: same bits.
// Use: rows_backward<T, D><<<…>>>(a);
#pragma once
#include "phases/13-instruction-diet/copies.cuh"
#include "phases/13-instruction-diet/fragments.cuh"
#include "phases/20-backward-tensor-cores/products.cuh"
#include "phases/20-backward-tensor-cores/row_terms.cuh"

namespace flash::phase20::inline FLASH_MACHINE {

// #region rows-tiles
using phase13::a_column, phase13::a_row, phase13::b_column, phase13::b_row;
using phase13::Fragments, phase13::load_tile;

template <int D>
struct RowsTiles {
  static constexpr int kRows = dq_blocks(D).Br, kKeys = dq_blocks(D).Bc, kRowTiles = kRows / 64;
  alignas(16) std::uint16_t Q[kRows][D];  // in the end dQ's rows, on their way out
  alignas(16) std::uint16_t dO[kRows][D];
  alignas(16) std::uint16_t K[2][kKeys][D];  // tile j is in stage j % 2
  alignas(16) std::uint16_t V[2][kKeys][D];
};
// #endregion

// #region rows-window
// Which keys a Q tile has: from key 0 on, which all rows see, one tile after the other. A window changes that (phase
// 26), and so do lists of tiles (phase 28).
template <class Variant>
struct RowsWindow {
  static constexpr std::int64_t begin = 0;  // the first tile's first key
  __device__ RowsWindow(std::int64_t, std::int64_t, int, const Variant&) {}
  __device__ std::int64_t keys(std::int64_t end) const { return end; }   // that some row sees
  __device__ static constexpr bool cuts(std::int64_t) { return false; }  // the tile with that first key, on the left
};
// #endregion

// #region rows-backward
// Four warps of 16 or 32 rows each.
template <class T, int D, class Variant>
__global__ void __launch_bounds__(128, D <= 128 ? 2 : 1) rows_backward(Backward<T, Variant> a) {
  using Tiles = RowsTiles<D>;
  constexpr int kRows = Tiles::kRows, kKeys = Tiles::kKeys, kRowTiles = Tiles::kRowTiles;
  Tiles& tiles = shared<Tiles>();
  std::int64_t head = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y, listed = std::int64_t{blockIdx.x} * kRows;
  if constexpr (Variant::lengths)
    if (!a.band.template enter_rows<D>(a, head, listed)) return;
  const std::int64_t b = head / a.H, h = head % a.H;
  if (b >= a.B) return;
  const auto keys = a.band.keys(static_cast<int>(head), a.H, 0);
  const Head<const T> K = a.K.head(keys.b, keys.h), V = a.V.head(keys.b, keys.h);  // [Sk, D]
  const std::int64_t first_row = Variant::lengths ? listed : std::int64_t{blockIdx.x} * kRows;
  const int warp_row = threadIdx.x / 32 * 16 * kRowTiles;

  // Keys from `end` on are seen by no row of the tile, keys before `full` by all of them.
  const std::int64_t end = a.band.end(min(first_row + kRows, a.Q.rows) - 1), full = a.band.end(first_row);
  const RowsWindow<Variant> window(first_row, min(first_row + kRows, a.Q.rows) - 1, kKeys, a.band);
  const int* list = nullptr;  // skips: the tiles that there are
  std::int64_t begin = window.begin, stop = end;
  if constexpr (Variant::skips)
    list = a.band.list_of_rows(static_cast<int>(b), static_cast<int>(h), blockIdx.x), begin = 0,
    stop = std::int64_t{list[0]} * kKeys;
  const auto key_at = [&](std::int64_t place) {  // keys count as their tiles come
    return Variant::skips ? list[2 + place / kKeys] * std::int64_t{kKeys} : place;
  };
  const auto begin_copies = [&](std::int64_t place) {
    const int stage = place / kKeys % 2;
    const std::int64_t first_key = key_at(place);
    load_tile<false, 128>(tiles.K[stage], K, first_key, window.keys(end));
    load_tile<false, 128>(tiles.V[stage], V, first_key, window.keys(end));
    cp_async_commit();
  };
  load_tile<false, 128>(tiles.Q, a.Q.head(b, h), first_row, a.Q.rows);
  load_tile<false, 128>(tiles.dO, a.dO.head(b, h), first_row, a.Q.rows);
  if (!Variant::skips || stop > 0)
    begin_copies(begin);
  else
    cp_async_commit();  // Q and dO, in whose place dQ goes out

  // The numbers of the lane's rows.
  float m[kRowTiles][2], inverse_l[kRowTiles][2], delta[kRowTiles][2], excess[kRowTiles][4];
  float dq[kRowTiles][D / 2] = {};
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const std::int64_t row = first_row + warp_row + 8 * i + lane_row(), n = head * a.rows + row;
    const bool exists = row < a.Q.rows;
    m[i / 2][i % 2] = exists ? a.row_m[n] : INFINITY;
    inverse_l[i / 2][i % 2] = exists ? a.row_inverse_l[n] : 0.0f;
    delta[i / 2][i % 2] = exists ? a.row_delta[n] : 0.0f;
    excess[i / 2][i % 2 * 2] = excess[i / 2][i % 2 * 2 + 1] = exists ? a.row_excess[n] : 0.0f;
  }

#pragma unroll 1
  for (std::int64_t place = begin; place < stop; place += kKeys) {
    const std::int64_t first_key = key_at(place);
    trace_mark(first_key + kKeys <= full && !window.cuts(first_key) ? "full" : "masked", first_key / kKeys);
    cp_async_wait<0>();
    __syncthreads();  // all threads' copies are there; and all have read the other stage, which the next ones fill
    if (place + kKeys < stop) begin_copies(place + kKeys);
    if (a.band.end(first_row + warp_row + 16 * kRowTiles - 1) <= first_key) continue;  // no row of the warp sees it
    const int stage = place / kKeys % 2;

    // S = Q Kᵀ and dP = dO Vᵀ, then dS = P ∘ (dP - δ), 0 by selection where the row does not see the key.
    float s[kRowTiles][kKeys / 2] = {}, dp[kRowTiles][kKeys / 2] = {};
    const Fragments<D> k_rows(&tiles, tiles.K[stage], b_row(), b_column());
    add_product<T, D>(s, Fragments<D>(&tiles, tiles.Q, warp_row + a_row(), a_column()), k_rows);
    add_product<T, D>(dp, Fragments<D>(&tiles, tiles.dO, warp_row + a_row(), a_column()),
                      Fragments<D>(&tiles, tiles.V[stage], b_row(), b_column()));
    unsigned ds[kRowTiles][kKeys / 16][4];
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) {
      if constexpr (Variant::modifies)
        a.band.template score_again<T>(s[rt], ds[rt], head / a.H, head % a.H,
                                       first_row + warp_row + 16 * rt + lane_row(), first_key + lane_column());
      if constexpr (Variant::drops)
        a.band.drop_gradient(dp[rt], head, a.H, first_row + warp_row + 16 * rt + lane_row(), first_key);
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        const int r = row_of(i);
        const float p = p_again(s[rt][i], a.scale_log2, m[rt][r], inverse_l[rt][r]);
        s[rt][i] = p * (dp[rt][i] - delta[rt][r]);
      }
      if constexpr (Variant::windows)
        if (window.cuts(first_key))
          hide_left_to_0(s[rt], a.band, first_row + warp_row + 16 * rt + lane_row(), first_key);
      if (first_key + kKeys > full) {
        int seen[2];
        for (int r = 0; r < 2; ++r) {
          const std::int64_t keys = a.band.end(first_row + warp_row + 16 * rt + 8 * r + lane_row()) - first_key;
          seen[r] = static_cast<int>(min(keys, std::int64_t{kKeys})) - lane_column();
        }
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i) s[rt][i] = column_of(i) < seen[row_of(i)] ? s[rt][i] : 0.0f;
      }
      if constexpr (Variant::modifies) a.band.template weigh<T>(s[rt], ds[rt]);
      round_p<T>(ds[rt], s[rt]);
    }

    // dQ += dS K, and the sums of dS's rows.
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      unsigned x[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) x[i / 4][i % 4] = ds[i / 4][k][i % 4];
      add_row_sums<T>(excess, x);
    }
    add_product_of_registers<T, D>(dq, ds, Fragments<D>(&tiles, tiles.K[stage], a_row(), a_column()), 0);
  }

  // scale, once: dS is the gradient of S = scale · Q Kᵀ. dQ goes out through the warp's rows of Q.
  cp_async_wait<0>();
  __syncthreads();  // no copy of Q is under way, where no row sees a key
#pragma unroll
  for (int rt = 0; rt < kRowTiles; ++rt) {
    move_to_centre<D>(dq[rt], a.centre + head * D, excess[rt][0], excess[rt][2]);
#pragma unroll
    for (float& x : dq[rt]) x *= a.scale;
  }
  phase13::put_rows<pack<T>>(dq, tiles.Q, warp_row);
  phase13::store_rows<16 * kRowTiles>(tiles.Q, warp_row, a.dQ.head(b, h), first_row);
}
// #endregion

// #region before-and-behind
// What the host launches before the kernel of dK and dV, and behind it: the numbers of rows; dQ, which is rounded where
// that kernel has added it up, and else made by a kernel of its own.
template <int D, class T, class Variant>
void launch_row_terms(const DeviceProblem<T>& p, const Backward<T, Variant>& a) {
  const auto blocks = static_cast<unsigned>(std::int64_t{p.B} * p.H * a.rows * (D / 8) / 128);
  if (a.rows > 0) row_terms<T, D, Variant><<<blocks, 128, sizeof(CentreSums<D, 128>), p.stream>>>(a);
}
template <int D, class T, class Variant>
void launch_dq(const DeviceProblem<T>& p, const Backward<T, Variant>& a) {
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  if (a.rows == 0) return;
  if (a.dQ_sum) {
    const auto blocks = static_cast<unsigned>(heads * ((p.Q.rows + 63) / 64));
    const auto kernel = finish_dq<T, D, Variant>;
    allow_shared_memory(kernel, sizeof(FinishTiles<D>));
    kernel<<<blocks, 128, sizeof(FinishTiles<D>), p.stream>>>(a);
  } else {
    const auto kernel = rows_backward<T, D, Variant>;
    allow_shared_memory(kernel, sizeof(RowsTiles<D>));
    kernel<<<grid_of(p.Q.rows, RowsTiles<D>::kRows, heads), 128, sizeof(RowsTiles<D>), p.stream>>>(a);
  }
}
// #endregion

}  // namespace flash::phase20::inline FLASH_MACHINE
