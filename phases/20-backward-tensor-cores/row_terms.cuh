// row_terms.cuh: what stands before the products and behind them: m, 1 / l and δ of each row; the sum of dQ, cleared in
// the first kernel and rounded in the last.
// Use: row_terms<T, D><<<…>>>(a); … finish_dq<T, D><<<…>>>(a);
#pragma once
#include "phases/09-backward/attention.cuh"  // restore
#include "phases/13-instruction-diet/output.cuh"
#include "phases/20-backward-tensor-cores/phase.hpp"
#include "phases/interface/variant.cuh"

namespace flash::phase20::inline FLASH_MACHINE {

// #region arguments
// What the kernels are given, for all heads. Numbers of rows have padded_rows(Sq) of them for each head.
template <class T, class Variant = PlainOf<std::int64_t>>
struct Backward {
  Heads<const T> Q;  // [B, H, Sq, D]
  Heads<T> O;        // [B, H, Sq, D], as dO and O_lo: only read
  Heads<const T> dO;
  Heads<std::int16_t> O_lo;                  // its data may be null
  Heads<const T> K, V;                       // [B, Hk, Sk, D]
  Heads<T> dQ, dK, dV;                       // as Q, K, V
  const float *LSE, *dLSE;                   // [B, H, Sq], natural log; dLSE may be null
  const float *m, *l;                        // [B, H, Sq], the forward pass's; null: LSE stands in for them
  float *row_m, *row_inverse_l, *row_delta;  // [B, H, padded rows]
  float* dQ_sum;      // [B, H, padded rows / 16, D / 8, 32 lanes, 4]: the one-pass variant adds to it; else null
  float* row_excess;  // [B, H, padded rows]: by how much a row of dS, rounded, misses its sum
  float* centre;      // [B, H, D], D as padded: a row near the keys' mean, or zeros
  int* off_centre;    // [B, H], from phase 23 on, else null: is that row another one than zeros?
  float scale, scale_log2;
  Variant band;  // row i sees the keys 0 … band.end(i) - 1
  int B, H;
  std::int64_t rows;  // padded rows of a head
  bool all_keys;      // does a row of dS sum to dLSE? Not if its other keys are elsewhere (phase 30)
};
template <class Variant = PlainOf<std::int64_t>, class T>
Backward<T, Variant> arguments_of(const DeviceProblem<T>& p) {
  const auto numbers = [&](std::size_t piece) { return static_cast<float*>(p.workspace[piece]); };
  Backward<T, Variant> a{};
  a.Q = p.Q, a.O = p.O, a.dO = p.dO, a.O_lo = p.O_lo, a.K = p.K, a.V = p.V;
  a.dQ = p.dQ, a.dK = p.dK, a.dV = p.dV;
  a.LSE = p.LSE, a.dLSE = p.dLSE, a.m = p.m, a.l = p.l;
  a.row_m = numbers(0), a.row_inverse_l = numbers(1), a.row_delta = numbers(2);
  a.dQ_sum = p.mode == Mode::Atomic ? numbers(3) : nullptr;
  a.row_excess = numbers(4), a.centre = numbers(5);
  a.scale = p.scale, a.scale_log2 = p.scale_log2, a.band = Variant::of(p);
  a.B = p.cut_batch ? static_cast<int>(p.sequences.N) : p.B, a.H = p.H, a.rows = padded_rows(p.Q.rows);
  a.all_keys = !p.all || p.all->options.all_keys;
  return a;
}
// #endregion

// #region pieces
// 8 elements of 16 bits each, as fp32.
template <class T>
__device__ __forceinline__ void widen_eight(float (&x)[8], const uint4& bits) {
  const unsigned pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 both = unpack<T>(pairs[i]);
    x[2 * i] = both.x, x[2 * i + 1] = both.y;
  }
}
template <class T>
__device__ __forceinline__ uint4 load_eight_bits(const Head<const T>& from, std::int64_t row, int c) {
  return load8(reinterpret_cast<const std::uint16_t*>(from.data + row * from.stride + c));
}
// 8 elements of a row, from column c on, as fp32: one access of 16 bytes where that may be, zeros beyond the end.
template <class T>
__device__ void load_row(float (&x)[8], const Head<const T>& from, std::int64_t row, int c) {
  if (in_pieces_of_8(from)) {
    widen_eight<T>(x, c < from.cols ? load_eight_bits(from, row, c) : make_uint4(0, 0, 0, 0));
  } else {
    const T* data = from.data + row * from.stride + c;
    for (int i = 0; i < 8; ++i) x[i] = c + i < from.cols ? widen(data[i]) : 0.0f;
  }
}
// The low bits of the same elements of O.
__device__ inline void restore_row(float (&o)[8], const Head<std::int16_t>& O_lo, std::int64_t row, int c) {
  const std::int16_t* low = O_lo.data + row * O_lo.stride + c;
  if (in_pieces_of_8(O_lo)) {
    if (c >= O_lo.cols) return;
    const uint4 bits = load8(reinterpret_cast<const std::uint16_t*>(low));
    const unsigned pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 8; ++i)
      o[i] = phase09::restore(o[i], static_cast<std::int16_t>(pairs[i / 2] >> (i % 2 * 16) & 0xffff));
  } else {
    for (int i = 0; i < 8; ++i)
      if (c + i < O_lo.cols) o[i] = phase09::restore(o[i], low[i]);
  }
}
// #endregion

// #region centre
// A row near the mean of a head's keys, or zeros where that is not worth it.
template <int D, int kThreads>
struct CentreSums {
  float keys[kThreads / 32][D], squares[kThreads / 32];  // of each warp; columns 0, 8 …, then 1, 9 …
  float lengths[kThreads / 32];
};
// A block finds it, from every so-manieth of the keys that some row sees (phase.hpp). Does it matter? A row of dS,
// rounded, misses its sum by e, and dQ errs by e · mean beside what rounding does anyway, which goes by how the keys
// differ. Where |mean|² < 1/8 of their variance rows need not be summed: 1.5 floors at most in place of 1.41. A mean
// of few keys would even harm there, when δ is off. Nor does it matter where a key is infinite or NaN: then zeros keep
// that from rows that do not see it.
template <class T, int D, int kThreads, class Arguments, class Variant>
__device__ bool find_centre(const Arguments& a, const Variant& band, int head, CentreSums<D, kThreads>& sums,
                            float* centre /*[D]*/) {
  constexpr int kLanes = D / 8, kWarps = kThreads / 32;
  const auto at = band.keys(head, a.H, 0);
  const Head<const T> K = a.K.head(at.b, at.h);
  std::int64_t seen = a.Q.rows > 0 ? a.band.end(a.Q.rows - 1) : 0, front = 0;
  if constexpr (Variant::windows) front = band.front(), seen = max(seen - front, std::int64_t{0});
  const int step = static_cast<int>(centre_step(seen)), keys = static_cast<int>(seen / step);
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / 32;
  float sum[8] = {}, square = 0;
  const auto add_up = [&](const auto& load) {
#pragma unroll 8
    for (int i = threadIdx.x / kLanes; i < keys; i += kThreads / kLanes) {
      float x[8];
      load(x, front + std::int64_t{i} * step);
#pragma unroll
      for (int c = 0; c < 8; ++c) sum[c] += x[c], square = fmaf(x[c], x[c], square);
    }
  };
  if (lane * 8 >= K.cols)
    ;  // zeros
  else if (in_pieces_of_8(K))
    add_up([&](float(&x)[8], std::int64_t key) { widen_eight<T>(x, load_eight_bits(K, key, lane * 8)); });
  else
    add_up([&](float(&x)[8], std::int64_t key) { load_row(x, K, key, lane * 8); });
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    square += __shfl_xor_sync(0xffffffffu, square, distance);
    if (distance >= kLanes)
#pragma unroll
      for (float& x : sum) x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  if (threadIdx.x % 32 < kLanes)
#pragma unroll
    for (int c = 0; c < 8; ++c) sums.keys[warp][c * kLanes + lane] = sum[c];
  if (threadIdx.x % 32 == 0) sums.squares[warp] = square;
  __syncthreads();  // all warps' sums are there
  const float each = keys > 0 ? 1 / static_cast<float>(keys) : 0.0f;
  float length = 0;
  for (int i = threadIdx.x; i < D; i += kThreads) {
    float mean = 0;
    for (int w = 0; w < kWarps; ++w) mean += sums.keys[w][i] * each;
    sums.keys[0][i] = mean, length = fmaf(mean, mean, length);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) length += __shfl_xor_sync(0xffffffffu, length, distance);
  if (threadIdx.x % 32 == 0) sums.lengths[warp] = length;
  __syncthreads();  // all warps' lengths are there
  float all = 0, squares = 0;
  for (int w = 0; w < kWarps; ++w) all += sums.lengths[w], squares += sums.squares[w] * each;
  const bool matters = a.all_keys && band.knows_sums() && all > 0 && 8 * all >= squares - all;  // NaN: no
  for (int i = threadIdx.x; i < D; i += kThreads)
    centre[i % kLanes * 8 + i / kLanes] = matters ? sums.keys[0][i] : 0.0f;
  return matters;
}
// dQ is linear in K: moving all keys by the centre moves it by what a row of dS sums to. dQ [rows, D] in the order of a
// product; a row whose sum is right, as one that sees nothing, is left alone whatever the keys are.
template <int D>
__device__ __forceinline__ void move_to_centre(float (&dq)[D / 2], const float* centre, float excess_0,
                                               float excess_8) {
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const float2 c = *reinterpret_cast<const float2*>(&centre[n * 8 + lane_column()]);
    float(&x)[4] = c_fragment(dq, n);
    x[0] -= excess_0 == 0 ? 0.0f : excess_0 * c.x, x[1] -= excess_0 == 0 ? 0.0f : excess_0 * c.y;
    x[2] -= excess_8 == 0 ? 0.0f : excess_8 * c.x, x[3] -= excess_8 == 0 ? 0.0f : excess_8 * c.y;
  }
}
// #endregion

// #region row-terms
// Of each row m, 1 / l and δ = Σ_d dO_d O_d - dLSE, as phase 09 has them: D / 8 lanes share a row. P of a row that does
// not exist or sees no finite logit is to be 0: its m is +inf. dQ_sum is cleared, too: 8 numbers a lane.
template <class T, int D, class Variant>
__global__ void __launch_bounds__(128) row_terms(Backward<T, Variant> a) {
  if (blockIdx.x < static_cast<unsigned>(a.B * a.H)) {  // the first blocks, one for each head
    const auto& its = alone<D>(a, a.band, blockIdx.x);
    find_centre<T, D>(its, its.band, blockIdx.x, shared<CentreSums<D, 128>>(), a.centre + std::int64_t{blockIdx.x} * D);
  }
  constexpr int kLanes = D / 8;
  std::int64_t row = std::int64_t{blockIdx.x} * (128 / kLanes) + threadIdx.x / kLanes;  // of all heads' padded
  const int lane = threadIdx.x % kLanes, c = lane * 8;
  std::int64_t head = row / a.rows, i = row % a.rows;
  if constexpr (Variant::lengths) {
    if (!a.band.template enter_rows<D>(a, head, i)) return;
    row = head * a.rows + i;
  }
  const std::int64_t b = head / a.H, h = head % a.H;
  const bool exists = head < std::int64_t{a.B} * a.H && i < a.Q.rows;
  float sum = 0;
  if (exists) {
    float o[8], dout[8];
    const Head<T> O = a.O.head(b, h);
    load_row(o, Head<const T>{O.data, O.stride, O.rows, O.cols}, i, c);
    load_row(dout, a.dO.head(b, h), i, c);
    if (a.O_lo.data) restore_row(o, a.O_lo.head(b, h), i, c);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum = fmaf(dout[e], o[e], sum);
  }
  if (a.dQ_sum && head < std::int64_t{a.B} * a.H) {
    float4* cleared = reinterpret_cast<float4*>(a.dQ_sum + row * D + c);
    cleared[0] = make_float4(0, 0, 0, 0);
    cleared[1] = make_float4(0, 0, 0, 0);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane > 0 || head >= std::int64_t{a.B} * a.H) return;
  const std::int64_t n = head * a.Q.rows + i;  // of all heads' rows
  const float m = !exists ? -INFINITY : a.m ? a.m[n] : a.LSE[n] * 1.4426950408889634f;
  const float l = exists && a.l ? a.l[n] : 1.0f, dLSE = exists && a.dLSE ? a.dLSE[n] : 0.0f;
  a.row_m[row] = m == -INFINITY ? INFINITY : m;
  a.row_inverse_l[row] = m == -INFINITY ? 0.0f : 1 / l;
  a.row_delta[row] = sum - dLSE;
  a.row_excess[row] = m == -INFINITY ? 0.0f : -dLSE;
}
// #endregion

// #region dq-sum
// dQ_sum lies as the accumulators of mma do, so that what a warp adds at once are 512 bytes on end: of each 16 rows and
// 8 columns the 4 numbers of lane 0, of lane 1 … From compute capability 9.0 on an atomic addition takes 4 numbers,
// below that one: there the first numbers of all lanes come first, then the second ones …
template <class Four>
inline constexpr bool kAddFour = requires(Four* p, Four x) {
  atomicAdd(p, x);
};
// Where a fragment of 16 x 8 begins.
template <int D>
__device__ float* dq_fragment(float* head_sum, std::int64_t row, int column) {
  return head_sum + row * D + column * 16;
}
template <class Four = float4>
__device__ __forceinline__ void add_fragment(float* fragment, const float (&x)[4]) {
  const int lane = threadIdx.x % 32;
  if constexpr (kAddFour<Four>) {
    atomicAdd(reinterpret_cast<Four*>(fragment) + lane, Four{x[0], x[1], x[2], x[3]});
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) atomicAdd(fragment + e * 32 + lane, x[e]);
  }
}
__device__ __forceinline__ float4 load_fragment(const float* fragment) {
  const int lane = threadIdx.x % 32;
  if constexpr (kAddFour<float4>) return load4(fragment + 4 * lane);
  return make_float4(fragment[lane], fragment[32 + lane], fragment[64 + lane], fragment[96 + lane]);
}
// #endregion

// #region finish
// The end of the one-pass variant: dQ = scale · dQ_sum, in dQ's type and strides. A warp has 16 rows.
template <int D>
struct FinishTiles {
  alignas(16) std::uint16_t dQ[64][D];
};
template <class T, int D, class Variant>
__global__ void __launch_bounds__(128) finish_dq(Backward<T, Variant> a) {
  FinishTiles<D>& tiles = shared<FinishTiles<D>>();
  const int warp_row = threadIdx.x / 32 * 16;
  const std::int64_t tiles_of_head = (a.Q.rows + 63) / 64;
  std::int64_t head = blockIdx.x / tiles_of_head, first_row = blockIdx.x % tiles_of_head * 64;
  if constexpr (Variant::lengths)
    if (!a.band.template enter_rows<D>(a, head, first_row)) return;
  if (first_row + warp_row >= a.Q.rows) return;
  float dq[1][D / 2];
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const float4 x = load_fragment(dq_fragment<D>(a.dQ_sum + head * a.rows * D, first_row + warp_row, n * 8));
    float(&of)[4] = c_fragment(dq[0], n);
    of[0] = x.x, of[1] = x.y, of[2] = x.z, of[3] = x.w;
  }
  const float* excess = a.row_excess + head * a.rows + first_row + warp_row + lane_row();
  move_to_centre<D>(dq[0], a.centre + head * D, excess[0], excess[8]);
#pragma unroll
  for (float& x : dq[0]) x *= a.scale;
  phase13::put_rows<pack<T>>(dq, tiles.dQ, warp_row);
  phase13::store_rows<16>(tiles.dQ, warp_row, a.dQ.head(head / a.H, head % a.H), first_row);
}
// #endregion

}  // namespace flash::phase20::inline FLASH_MACHINE
