// Phase 09: the backward pass. P is never stored: a block recomputes a tile of it from Q, K, m and l when it needs it.
// New since 08: three kernels (δ; dK and dV; dQ), five matrix products, and rows that several threads share.
// Run it: ./flash tour 09     Test it: ./flash test 09     The derivation: docs/backward.md
#pragma once
#include "phases/09-backward/forward.cuh"

namespace flash::phase09::inline FLASH_MACHINE {

// #region arguments
// What the kernels are given, for all heads.
template <class T>
struct Backward {
  Heads<const T> Q;  // [B, H, Sq, D]
  Heads<T> O;        // [B, H, Sq, D], as dO and O_lo: only read
  Heads<const T> dO;
  Heads<std::int16_t> O_lo;  // its data may be null
  Heads<const T> K, V;       // [B, H, Sk, D]
  Heads<T> dQ, dK, dV;       // as Q, K, V
  const float *LSE, *dLSE;   // [B, H, Sq], natural log; dLSE may be null
  const float *m, *l;        // [B, H, Sq], the forward pass's; null: LSE stands in for them
  float* delta;              // [B, H, Sq]
  float* dQ_sum;             // [B, H, Sq, D], fp32: the one-pass variant adds to it; else null
  float scale, scale_log2;
  Band<std::int64_t> band;  // row i sees the keys 0 … band.end(i) - 1
  int B, H;
};
// #endregion

// #region columns
// A row of dQ, or of dK and dV, is too long for one thread's registers: 2 · 128 fp32 numbers would fill all 255. Its
// columns are divided among D / Columns threads, which also divide the row's part of P and dS.
template <int D>
inline constexpr int Columns = D < 32 ? D : 32;
template <int D>
inline constexpr int Parts = D / Columns<D>;
// #endregion

// #region tiles
// Shared memory of a block, fp32. Rows are 4 floats longer than D, as Q's were before: each thread reads its own row.
template <int D, int Br, int Bc>
struct GradientTiles {
  alignas(16) float Q[Br][D + 4];
  alignas(16) float dO[Br][D + 4];
  alignas(16) float K[Bc][D + 4];
  alignas(16) float V[Bc][D + 4];
  float m[Br];
  float inverse_l[Br];
  float delta[Br];
  float P[Br][Bc + 1];  // one spare column: lanes that walk down a column meet 32 banks
  float dS[Br][Bc + 1];
};
// #endregion

// #region two-products
// s[n] = own_s · other_s[n] and dp[n] = own_dp · other_dp[n]: both products of a tile in one sweep over the columns.
// s adds in the forward pass's order, so that P is its P. dp adds in two chains, as a shorter chain rounds less: where
// one key takes nearly all of a row's weight, little but dp's rounding is left of dS = P ∘ (dp - δ).
template <int D, int N>
__device__ void two_products(const float (&own_s)[D + 4], const float (*other_s)[D + 4], const float (&own_dp)[D + 4],
                             const float (*other_dp)[D + 4], float (&s)[N], float (&dp)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) s[n] = dp[n] = 0;
  float more[N] = {};
#pragma unroll 1
  for (int d = 0; d < D; d += 4) {
    const float4 x = load4(&own_s[d]), y = load4(&own_dp[d]);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float4 u = load4(&other_s[n][d]), w = load4(&other_dp[n][d]);
      s[n] = fmaf(x.x, u.x, s[n]);
      s[n] = fmaf(x.y, u.y, s[n]);
      s[n] = fmaf(x.z, u.z, s[n]);
      s[n] = fmaf(x.w, u.w, s[n]);
      dp[n] = fmaf(y.x, w.x, dp[n]);
      dp[n] = fmaf(y.y, w.y, dp[n]);
      more[n] = fmaf(y.z, w.z, more[n]);
      more[n] = fmaf(y.w, w.w, more[n]);
    }
  }
#pragma unroll
  for (int n = 0; n < N; ++n) dp[n] += more[n];
}
// #endregion

// #region add-row
// sum += factor · row: `Count` columns.
template <int Count>
__device__ __forceinline__ void add_row(float (&sum)[Count], float factor, const float* row) {
#pragma unroll
  for (int c = 0; c < Count; c += 4) {
    const float4 x = load4(row + c);
    sum[c] = fmaf(factor, x.x, sum[c]);
    sum[c + 1] = fmaf(factor, x.y, sum[c + 1]);
    sum[c + 2] = fmaf(factor, x.z, sum[c + 2]);
    sum[c + 3] = fmaf(factor, x.w, sum[c + 3]);
  }
}
// #endregion

// #region row-scale
// What turns a row's logits into its P: m in base 2 and 1 / l.
struct RowScale {
  float m = 0, inverse_l = 0;
};

// A caller with LSE alone uses it as m, with l = 1: then LSE's rounding is a factor on the row's P. A row without a
// finite logit has m = -inf, and -inf - -inf would be NaN: +inf makes its P 0.
template <class T>
__device__ __forceinline__ RowScale row_scale(const Backward<T>& a, std::int64_t row) {
  const float m = a.m ? a.m[row] : a.LSE[row] * 1.4426950408889634f, l = a.l ? a.l[row] : 1.0f;
  return m == -INFINITY ? RowScale{INFINITY, 0} : RowScale{m, 1 / l};
}
// #endregion

// #region p-again
// P_ij by the operations of the forward pass, so that it is that P to the last places: scale, round, subtract the same
// m. Not fmaf(s, scale_log2, -m): m is a *rounded* product, and at logits of 2e7 its rounding is a factor of 2.
__device__ __forceinline__ float p_again(float s, float scale_log2, float m, float inverse_l) {
  return exp2f(s * scale_log2 - m) * inverse_l;
}
// #endregion

// #region delta
// δ_i = Σ_d dO_id O_id - dLSE_i, a warp for each row. δ is most sensitive to O, so the bits that rounding cut off are
// restored: an error of δ is the same for all keys of the row, and dQ adds it up over the keys.
template <class T>
__global__ void __launch_bounds__(128) delta_of_rows(Backward<T> a) {
  const std::int64_t row = std::int64_t{blockIdx.x} * 4 + threadIdx.x / 32;  // of all B · H · Sq
  const int lane = threadIdx.x % 32, D = a.O.cols;
  if (row >= a.B * a.H * a.O.rows) return;
  const std::int64_t i = row % a.O.rows, b = row / a.O.rows / a.H, h = row / a.O.rows % a.H;
  const T* O = a.O.head(b, h).data + i * a.O.stride;                                              // [D]
  const T* dO = a.dO.head(b, h).data + i * a.dO.stride;                                           // [D]
  const std::int16_t* O_lo = a.O_lo.data ? a.O_lo.head(b, h).data + i * a.O_lo.stride : nullptr;  // [D]
  float sum = 0;
  for (int d = lane; d < D; d += 32) {
    const float o = O_lo ? restore(widen(O[d]), O_lo[d]) : widen(O[d]);
    sum = fmaf(widen(dO[d]), o, sum);
    if (a.dQ_sum) a.dQ_sum[row * D + d] = 0;
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0) a.delta[row] = sum - (a.dLSE ? a.dLSE[row] : 0.0f);
}
// #endregion

// #region keys-head
// dK and dV: a block owns a K/V tile, and the Q tiles that see it stream by. With AddQ it adds its share of dQ to the
// sum of all blocks: one pass in all, but in no fixed order.
template <class T, int D, int Br, int Bc, bool AddQ>
__global__ void __launch_bounds__(Bc* Parts<D>) keys_backward(Backward<T> a) {
  GradientTiles<D, Br, Bc>& tiles = shared<GradientTiles<D, Br, Bc>>();
  const std::int64_t head = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y, b = head / a.H, h = head % a.H;
  if (b >= a.B) return;
  const Head<const T> Q = a.Q.head(b, h), dO = a.dO.head(b, h);  // [Sq, D]
  const Head<const T> K = a.K.head(b, h), V = a.V.head(b, h);    // [Sk, D]
  const float* delta = a.delta + head * Q.rows;                  // [Sq]

  // Which key is mine, and which of its columns?
  const int key = threadIdx.x % Bc, part = threadIdx.x / Bc, first_column = part * Columns<D>;
  const std::int64_t first_key = std::int64_t{blockIdx.x} * Bc;
  const int keys = min(K.rows - first_key, std::int64_t{Bc});
  load_tile<D>(tiles.K, K, first_key);
  load_tile<D>(tiles.V, V, first_key);
  float dk[Columns<D>] = {}, dv[Columns<D>] = {};
  // #endregion

  // #region keys-loop
  // Q tiles from the one with the first row that sees the first key.
  const std::int64_t first_seen = max(first_key - a.band.right, std::int64_t{0});
  for (std::int64_t first_row = first_seen / Br * Br; first_row < Q.rows; first_row += Br) {
    trace_mark("tile", first_row / Br);
    const int rows = min(Q.rows - first_row, std::int64_t{Br});
    load_tile<D>(tiles.Q, Q, first_row);
    load_tile<D>(tiles.dO, dO, first_row);
    for (int i = threadIdx.x; i < Br; i += blockDim.x) {
      const RowScale scale = i < rows ? row_scale(a, head * Q.rows + first_row + i) : RowScale{};
      tiles.m[i] = scale.m;
      tiles.inverse_l[i] = scale.inverse_l;
      tiles.delta[i] = i < rows ? delta[first_row + i] : 0.0f;
    }
    __syncthreads();  // the tiles are complete: each was filled by all threads

    // #endregion
    // #region keys-p-and-ds
    // P = exp(S - m) / l and dS = P ∘ (dP - δ), my key's column of them; my part of its rows, a few at a time.
    constexpr int Mine = Br / Parts<D>, N = Mine < 16 ? Mine : 16;
#pragma unroll 1
    for (int first = part * Mine; first < (part + 1) * Mine; first += N) {
      float s[N], dp[N];
      two_products<D>(tiles.K[key], &tiles.Q[first], tiles.V[key], &tiles.dO[first], s, dp);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float p = p_again(s[n], a.scale_log2, tiles.m[first + n], tiles.inverse_l[first + n]);
        tiles.P[first + n][key] = p;
        tiles.dS[first + n][key] = p * (dp[n] - tiles.delta[first + n]);
      }
    }
    __syncthreads();  // P and dS are complete: the parts of a key computed different rows

    // #endregion
    // #region keys-sums
    // dV += Pᵀ dO, dK += dSᵀ Q over the rows that exist and see my key: the mask is where the loop begins, so that
    // nothing of a row that does not see the key is ever touched.
    const std::int64_t first_of_mine =
        key < keys ? max(first_key + key - a.band.right - first_row, std::int64_t{0}) : Br;
#pragma unroll 1
    for (std::int64_t i = first_of_mine; i < rows; ++i) {
      add_row(dv, tiles.P[i][key], &tiles.dO[i][first_column]);
      add_row(dk, tiles.dS[i][key], &tiles.Q[i][first_column]);
    }
    // #endregion

    // #region keys-add-dq
    // This tile's share of dQ = dS K, row by row; other blocks add to the same rows at the same time.
    if constexpr (AddQ) {
      for (int n = threadIdx.x; n < Br * Parts<D>; n += blockDim.x) {
        const int row = n % Br, column = n / Br * Columns<D>;
        const std::int64_t i = first_row + row;
        if (row >= rows) continue;
        const int seen = static_cast<int>(min(a.band.end(i) - first_key, std::int64_t{keys}));
        float dq[Columns<D>] = {};
#pragma unroll 1
        for (int j = 0; j < seen; ++j) add_row(dq, tiles.dS[row][j], &tiles.K[j][column]);
        float* sum = a.dQ_sum + (head * Q.rows + i) * Q.cols;  // [D]
#pragma unroll
        for (int c = 0; c < Columns<D>; ++c)
          if (seen > 0 && column + c < Q.cols) atomicAdd(&sum[column + c], dq[c]);
      }
    }
    // #endregion
    // #region keys-store
    __syncthreads();  // all threads have read Q, dO, P and dS: the next round may overwrite them
  }

  // scale, once: dS is the gradient of S = scale · Q Kᵀ.
  if (key >= keys) return;
  T* dk_row = a.dK.head(b, h).data + (first_key + key) * a.dK.stride;  // [D]
  T* dv_row = a.dV.head(b, h).data + (first_key + key) * a.dV.stride;  // [D]
#pragma unroll
  for (int c = 0; c < Columns<D>; ++c)
    if (first_column + c < K.cols) {
      dk_row[first_column + c] = round_to<T>(dk[c] * a.scale);
      dv_row[first_column + c] = round_to<T>(dv[c]);
    }
  // #endregion
}

// #region rows-head
// dQ: a block owns a Q tile, and the K/V tiles that it sees stream by, as in the forward pass. No atomics: same bits.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br* Parts<D>) rows_backward(Backward<T> a) {
  GradientTiles<D, Br, Bc>& tiles = shared<GradientTiles<D, Br, Bc>>();
  const std::int64_t head = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y, b = head / a.H, h = head % a.H;
  if (b >= a.B) return;
  const Head<const T> Q = a.Q.head(b, h), dO = a.dO.head(b, h);  // [Sq, D]
  const Head<const T> K = a.K.head(b, h), V = a.V.head(b, h);    // [Sk, D]
  const float* delta = a.delta + head * Q.rows;                  // [Sq]

  // Which row is mine, and which of its columns?
  const int row = threadIdx.x % Br, part = threadIdx.x / Br, first_column = part * Columns<D>;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * Br;
  const int rows = min(Q.rows - first_row, std::int64_t{Br});
  load_tile<D>(tiles.Q, Q, first_row);
  load_tile<D>(tiles.dO, dO, first_row);
  const RowScale mine = row < rows ? row_scale(a, head * Q.rows + first_row + row) : RowScale{};
  const float my_delta = row < rows ? delta[first_row + row] : 0.0f;
  float dq[Columns<D>] = {};
  // #endregion

  // #region rows-loop
  // K/V tiles up to the last key that the last row sees.
  const std::int64_t end = a.band.end(first_row + rows - 1);
  for (std::int64_t first_key = 0; first_key < end; first_key += Bc) {
    trace_mark("tile", first_key / Bc);
    const int keys = min(K.rows - first_key, std::int64_t{Bc});
    load_tile<D>(tiles.K, K, first_key);
    load_tile<D>(tiles.V, V, first_key);
    __syncthreads();  // the tiles are complete: each was filled by all threads

    // #endregion
    // #region rows-ds
    // dS again, my row of it; my part of its keys, a few at a time.
    constexpr int Mine = Bc / Parts<D>, N = Mine < 16 ? Mine : 16;
#pragma unroll 1
    for (int first = part * Mine; first < (part + 1) * Mine; first += N) {
      float s[N], dp[N];
      two_products<D>(tiles.Q[row], &tiles.K[first], tiles.dO[row], &tiles.V[first], s, dp);
#pragma unroll
      for (int n = 0; n < N; ++n)
        tiles.dS[row][first + n] = p_again(s[n], a.scale_log2, mine.m, mine.inverse_l) * (dp[n] - my_delta);
    }
    __syncthreads();  // dS is complete: the parts of a row computed different keys

    // #endregion
    // #region rows-sum
    // dQ += dS K over the keys that my row sees.
    const std::int64_t seen = row < rows ? min(a.band.end(first_row + row) - first_key, std::int64_t{keys}) : 0;
#pragma unroll 1
    for (int j = 0; j < seen; ++j) add_row(dq, tiles.dS[row][j], &tiles.K[j][first_column]);
    __syncthreads();  // all threads have read K, V and dS: the next round may overwrite them
  }

  if (row >= rows) return;
  T* dq_row = a.dQ.head(b, h).data + (first_row + row) * a.dQ.stride;  // [D]
#pragma unroll
  for (int c = 0; c < Columns<D>; ++c)
    if (first_column + c < Q.cols) dq_row[first_column + c] = round_to<T>(dq[c] * a.scale);
  // #endregion
}

// #region finish
// The end of the one-pass variant: dQ = scale · dQ_sum, in dQ's type and strides.
template <class T>
__global__ void __launch_bounds__(128) finish_dq(Backward<T> a) {
  const std::int64_t n = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = n / a.dQ.cols, d = n % a.dQ.cols;
  if (row >= a.B * a.H * a.dQ.rows) return;
  const std::int64_t i = row % a.dQ.rows, b = row / a.dQ.rows / a.H, h = row / a.dQ.rows % a.H;
  a.dQ.head(b, h).data[i * a.dQ.stride + d] = round_to<T>(a.dQ_sum[n] * a.scale);
}
// #endregion

// #region host
// The host's side: δ, then dK and dV, then dQ: three launches. Atomic: δ, then all three in one, then dQ rounded.
struct Gradients {
  template <int D, int Br, int Bc>
  using Shared = GradientTiles<D, Br, Bc>;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const bool atomic = p.mode == Mode::Atomic;
    auto* const delta = static_cast<float*>(p.workspace[0]);
    auto* const dQ_sum = atomic ? static_cast<float*>(p.workspace[1]) : nullptr;
    const Backward<T> a{p.Q,    p.O, p.dO, p.O_lo, p.K,    p.V,     p.dQ,         p.dK,   p.dV, p.LSE,
                        p.dLSE, p.m, p.l,  delta,  dQ_sum, p.scale, p.scale_log2, p.band, p.B,  p.H};
    const std::int64_t heads = std::int64_t{p.B} * p.H, rows = heads * p.Q.rows;
    const auto blocks_of = [](std::int64_t work, std::int64_t each) {
      return static_cast<unsigned>((work + each - 1) / each);
    };
    const auto keys_kernel = atomic ? keys_backward<T, D, Br, Bc, true> : keys_backward<T, D, Br, Bc, false>;
    const auto rows_kernel = rows_backward<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(GradientTiles<D, Br, Bc>);
    allow_shared_memory(keys_kernel, shared_bytes);
    allow_shared_memory(rows_kernel, shared_bytes);
    const dim3 key_tiles = grid_of(p.K.rows, Bc, heads), row_tiles = grid_of(p.Q.rows, Br, heads);
    if (rows > 0) delta_of_rows<T><<<blocks_of(rows, 4), 128, 0, p.stream>>>(a);
    if (p.K.rows > 0) keys_kernel<<<key_tiles, Bc * Parts<D>, shared_bytes, p.stream>>>(a);
    if (rows > 0 && !atomic) rows_kernel<<<row_tiles, Br * Parts<D>, shared_bytes, p.stream>>>(a);
    if (rows > 0 && atomic) finish_dq<T><<<blocks_of(rows * p.Q.cols, 128), 128, 0, p.stream>>>(a);
  }
};
// #endregion

}  // namespace flash::phase09::inline FLASH_MACHINE
