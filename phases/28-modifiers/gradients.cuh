// gradients.cuh: the gradients of what a score is changed by: of a bias and of sinks, each by a kernel of its own
// behind the others. What is summed has one owner, which adds in a fixed order: the same bits in every run.
// Use: launch_score_gradients<D, Variant>(p, delta_of_pieces(p));
#pragma once
#include "phases/20-backward-tensor-cores/rows_backward.cuh"
#include "phases/28-modifiers/combined.cuh"

namespace flash::inline FLASH_MACHINE {

// #region rows: what the backward pass has of each row
// m and l as the forward pass left them, or LSE in their place; δ where the kernel in front has put it.
struct RowsOfScores {
  const float *m, *l, *LSE;  // [B, H, Sq]
  const float* delta;        // of 64 rows on end, `piece` numbers further on of the next 64; a head's rows are padded
  std::int64_t Sq, padded;
  int piece;

  struct Row {
    float m, inverse_l, delta;
  };
  // P = exp2(c · S - m) · inverse_l: 0 for rows that do not exist or see no finite logit.
  __device__ Row row(std::int64_t head, std::int64_t i) const {
    if (i >= Sq) return {INFINITY, 0, 0};
    const std::int64_t n = head * Sq + i, at = head * padded + i;
    const float m_of = m ? m[n] : LSE[n] * 1.4426950408889634f;
    return {m_of == -INFINITY ? INFINITY : m_of, m && m_of > -INFINITY ? 1 / l[n] : 1.0f,
            delta[at / 64 * piece + at % 64]};
  }
};
// #endregion

// #region dsinks
// A sink has a P in each row, and its dP is 0: dsink = -Σ P δ, over all rows of all batch entries. A block for each
// head.
template <int kThreads>
struct SinkSums {
  float of_warp[kThreads / 32];
};
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    sinks_gradient(const float* sinks /*[H]*/, float* dsinks /*[H]*/, RowsOfScores rows, float c, int B) {
  const int h = blockIdx.x, H = gridDim.x;
  const float sink = sinks[h] * c;
  float sum = 0;
  for (int b = 0; b < B; ++b)
    for (std::int64_t i = threadIdx.x; i < rows.Sq; i += kThreads) {
      const RowsOfScores::Row row = rows.row(std::int64_t{b} * H + h, i);
      sum -= ex2_approx_ftz(sink - row.m) * row.inverse_l * row.delta;
    }
  SinkSums<kThreads>& sums = shared<SinkSums<kThreads>>();
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) sums.of_warp[threadIdx.x / 32] = sum;
  __syncthreads();  // the sums of all warps are there
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) sum += sums.of_warp[warp];
  dsinks[h] = sum;
}
// #endregion

// #region dbias
// dbias = P ∘ (dP - δ), summed over the axes that bias shares: a block owns 64 rows and 64 keys of it and makes S and
// dP of all that comes there, once more, one after the other. Four warps have 16 rows each.
template <int D>
struct BiasTiles {
  alignas(16) std::uint16_t Q[64][D], dO[64][D], K[64][D], V[64][D];
  float sums[4][64];  // of each warp's rows
};
template <class T, int D, class Variant>
__global__ void __launch_bounds__(128)
    bias_gradient(Heads<const T> Q, Heads<const T> dO /*[B, H, Sq, D]*/, Heads<const T> K,
                  Heads<const T> V /*[B, Hk, Sk, D]*/, PairArray<float> dbias, int bias_B, int bias_H,
                  std::int64_t bias_Sq, RowsOfScores rows, float c, Variant band, int B, int H, bool unseen_alone) {
  using phase13::Fragments, phase13::a_row, phase13::a_column, phase13::b_row, phase13::b_column, phase13::load_tile;
  BiasTiles<D>& tiles = shared<BiasTiles<D>>();
  const int warp_row = threadIdx.x / 32 * 16;
  const std::int64_t first_key = std::int64_t{blockIdx.x} * 64, key = first_key + lane_column();
  const int at_b = blockIdx.z / bias_H, at_h = blockIdx.z % bias_H;
  const bool all_b = bias_B < B, all_h = bias_H < H, all_rows = bias_Sq < Q.rows;
  // What is seen has been stored where dS was made (bias.cuh); the rest is 0.
  if (unseen_alone && band.end(min((std::int64_t{blockIdx.y} + 1) * 64, Q.rows) - 1) > first_key) return;
  float sum[32] = {};
  for (int b = all_b ? 0 : at_b; b < (all_b ? B : at_b + 1); ++b)
    for (int h = all_h ? 0 : at_h; h < (all_h ? H : at_h + 1); ++h) {
      const int head = b * H + h;
      const auto at = band.keys(head, H, 0);
      for (std::int64_t first = all_rows ? 0 : std::int64_t{blockIdx.y} * 64; first < Q.rows; first += 64) {
        const std::int64_t last = min(first + 64, Q.rows) - 1;
        const bool hidden = band.modifier.hides_block(b, h, first / 64, blockIdx.x);
        if (band.end(last) > first_key && !hidden) {  // the same for all threads
          __syncthreads();                            // all have read the tiles before
          load_tile<false, 128>(tiles.Q, Q.head(b, h), first, Q.rows);
          load_tile<false, 128>(tiles.dO, dO.head(b, h), first, Q.rows);
          load_tile<false, 128>(tiles.K, K.head(at.b, at.h), first_key, K.rows);
          load_tile<false, 128>(tiles.V, V.head(at.b, at.h), first_key, K.rows);
          cp_async_commit();
          cp_async_wait<0>();
          __syncthreads();  // all threads' copies are there
          float s[1][32] = {}, dp[1][32] = {};
          phase20::add_product<T, D>(s, Fragments<D>(&tiles, tiles.Q, warp_row + a_row(), a_column()),
                                     Fragments<D>(&tiles, tiles.K, b_row(), b_column()));
          phase20::add_product<T, D>(dp, Fragments<D>(&tiles, tiles.dO, warp_row + a_row(), a_column()),
                                     Fragments<D>(&tiles, tiles.V, b_row(), b_column()));
          const std::int64_t my_row = first + warp_row + lane_row();
          band.score(s[0], head, H, my_row, key);
          const RowsOfScores::Row my_rows[2] = {rows.row(head, my_row), rows.row(head, my_row + 8)};
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const auto seen = band.visible(static_cast<decltype(band.Sq)>(my_row + 8 * r));
#pragma unroll
            for (int e = 2 * r; e < 32; e += 4)
#pragma unroll
              for (int x = e; x < e + 2; ++x) {
                const float p = ex2_approx_ftz(s[0][x] * c - my_rows[r].m) * my_rows[r].inverse_l;
                const bool unseen = !seen.contains(key + column_of(x)) || s[0][x] == -INFINITY;
                sum[x] += unseen ? 0.0f : p * (dp[0][x] - my_rows[r].delta);
              }
          }
        }
        if (!all_rows) break;
      }
    }

  float* const to = const_cast<float*>(dbias.head(at_b, at_h));
  if (!all_rows) {
    const std::int64_t row = std::int64_t{blockIdx.y} * 64 + warp_row + lane_row();
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const std::int64_t i = row + 8 * row_of(e), j = key + column_of(e);
      if (i < Q.rows && j < K.rows) to[i * dbias.stride + j] = sum[e];
    }
    return;
  }
  // All rows share it: a lane's two rows, then the eight lanes that have other rows, then the four warps.
#pragma unroll
  for (int e = 0; e < 32; ++e) {
    if (row_of(e) == 1) continue;
    float x = sum[e] + sum[e + 2];
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    if (lane_row() == 0) tiles.sums[threadIdx.x / 32][column_of(e) + lane_column()] = x;
  }
  __syncthreads();  // the sums of all warps are there
  const std::int64_t j = first_key + threadIdx.x;
  if (threadIdx.x < 64 && j < K.rows) {
    float x = 0;
    for (int warp = 0; warp < 4; ++warp) x += tiles.sums[warp][threadIdx.x];
    to[j] = x;
  }
}
// #endregion

// #region launch
// dbias is 0 before anything is added. A block for each row.
template <class T>
__global__ void __launch_bounds__(256) clear_pairs(PairArray<T> dbias, int H, std::int64_t Sk) {
  T* const row = const_cast<T*>(dbias.head(blockIdx.y / H, blockIdx.y % H)) + blockIdx.x * dbias.stride;
  for (std::int64_t j = threadIdx.x; j < Sk; j += 256) row[j] = 0;
}
template <class T>
void clear_bias_gradient(const DeviceProblem<T>& p) {
  const AnyView& dbias = p.all->dbias;
  if (dbias.elements() > 0)
    clear_pairs<<<dim3(static_cast<unsigned>(dbias.S()), static_cast<unsigned>(dbias.B() * dbias.H())), 256, 0,
                  p.stream>>>(PairArray<float>::of(dbias), static_cast<int>(dbias.H()), dbias.D());
}

// p's scores are natural ones. `delta`, `piece`: as in RowsOfScores. gradient: what has been done for dbias.
template <int D, class Variant, class T>
void launch_score_gradients(const DeviceProblem<T>& p, const float* delta, int piece,
                            BiasGradient gradient = BiasGradient::Left) {
  const AnyProblem& all = *p.all;
  const RowsOfScores rows{p.m, p.l, p.LSE, delta, p.Q.rows, phase20::padded_rows(p.Q.rows), piece};
  if (all.dsinks.given())
    sinks_gradient<256><<<static_cast<unsigned>(p.H), 256, sizeof(SinkSums<256>), p.stream>>>(
        static_cast<const float*>(all.sinks.data), static_cast<float*>(all.dsinks.data), rows, p.scale_log2, p.B);
  const AnyView& dbias = all.dbias;
  const bool unseen_alone = gradient == BiasGradient::Stored;
  if (!dbias.given() || dbias.elements() == 0 || gradient == BiasGradient::Added) return;
  if (unseen_alone && !p.band.cuts_right()) return;
  const auto kernel = bias_gradient<T, D, Variant>;
  allow_shared_memory(kernel, sizeof(BiasTiles<D>));
  const auto tiles = [](std::int64_t length) { return static_cast<unsigned>((length + 63) / 64); };
  kernel<<<dim3(tiles(p.K.rows), tiles(dbias.S()), static_cast<unsigned>(dbias.B() * dbias.H())), 128,
           sizeof(BiasTiles<D>), p.stream>>>(p.Q, p.dO, p.K, p.V, PairArray<float>::of(dbias),
                                             static_cast<int>(dbias.B()), static_cast<int>(dbias.H()), dbias.S(), rows,
                                             p.scale_log2, Variant::of(p), p.B, p.H, unseen_alone);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
