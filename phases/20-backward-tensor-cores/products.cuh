// products.cuh: the two kinds of products of the backward pass, of a warp's row tiles of 16 rows each: both operands in
// shared memory (S, dP), or the left one in registers (dV, dK, dQ). P again, as the forward pass had it.
// Use: add_product<T, D>(s, q_rows, k_rows); add_product_of_registers<T, D>(dq, ds, k_rows, 0);
#pragma once
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/13-instruction-diet/fragments.cuh"

namespace flash::phase20::inline FLASH_MACHINE {

// #region add-product: S = Q Kᵀ, dP = dO Vᵀ, and both transposed
// c += X Yᵀ over D columns: X are the warp's rows, Y's rows become columns, 2 · N of them from row `first` on.
template <class T, int D, int kRowTiles, int N>
__device__ __forceinline__ void add_product(float (&c)[kRowTiles][N], const phase13::Fragments<D>& x_rows,
                                            const phase13::Fragments<D>& y_rows, int first = 0) {
#pragma unroll
  for (int d = 0; d < D; d += 16) {
    unsigned x[kRowTiles][4];
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) ldmatrix_x4(x[rt], x_rows.at(rt * 16, d));
#pragma unroll
    for (int n = 0; n < N / 4; n += 2) {
      unsigned y[4];
      ldmatrix_x4(y, y_rows.at(first + n * 8, d));
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt) {
        mma_m16n8k16<T>(c_fragment(c[rt], n), x[rt], {y[0], y[1]}, c_fragment(c[rt], n));
        mma_m16n8k16<T>(c_fragment(c[rt], n + 1), x[rt], {y[2], y[3]}, c_fragment(c[rt], n + 1));
      }
    }
  }
}
// #endregion

// #region add-product-of-kept: the same, with X's fragments in registers
template <class T, int D, int kRowTiles, int N>
__device__ __forceinline__ void add_product_of_kept(float (&c)[kRowTiles][N], const unsigned (&x)[kRowTiles][D / 16][4],
                                                    const phase13::Fragments<D>& y_rows, int first) {
#pragma unroll
  for (int d = 0; d < D; d += 16)
#pragma unroll
    for (int n = 0; n < N / 4; n += 2) {
      unsigned y[4];
      ldmatrix_x4(y, y_rows.at(first + n * 8, d));
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt) {
        mma_m16n8k16<T>(c_fragment(c[rt], n), x[rt][d / 16], {y[0], y[1]}, c_fragment(c[rt], n));
        mma_m16n8k16<T>(c_fragment(c[rt], n + 1), x[rt][d / 16], {y[2], y[3]}, c_fragment(c[rt], n + 1));
      }
    }
}
// #endregion

// #region add-product-of-registers: dV += Pᵀ dO, dK += dSᵀ Q, dQ += dS K
// c += X Z: X, in registers, has 16 · kTiles columns, Z as many rows from row `first` on, D columns.
template <class T, int D, int kRowTiles, int kTiles>
__device__ __forceinline__ void add_product_of_registers(float (&c)[kRowTiles][D / 2],
                                                         const unsigned (&x)[kRowTiles][kTiles][4],
                                                         const phase13::Fragments<D>& z_rows, int first) {
#pragma unroll
  for (int k = 0; k < kTiles; ++k)
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      unsigned z[4];
      ldmatrix_x4_trans(z, z_rows.at(first + k * 16, n * 8));
#pragma unroll
      for (int rt = 0; rt < kRowTiles; ++rt) {
        mma_m16n8k16<T>(c_fragment(c[rt], n), x[rt][k], {z[0], z[1]}, c_fragment(c[rt], n));
        mma_m16n8k16<T>(c_fragment(c[rt], n + 1), x[rt][k], {z[2], z[3]}, c_fragment(c[rt], n + 1));
      }
    }
}
// #endregion

// #region add-row-sums
// The sums of X's rows: X times ones. All columns of the product are alike, so a lane has those of its two rows twice.
template <class T, int kRowTiles>
__device__ __forceinline__ void add_row_sums(float (&sums)[kRowTiles][4], const unsigned (&x)[kRowTiles][4]) {
  constexpr unsigned ones = std::is_same_v<T, __half> ? 0x3c003c00u : 0x3f803f80u;
#pragma unroll
  for (int rt = 0; rt < kRowTiles; ++rt) mma_m16n8k16<T>(sums[rt], x[rt], {ones, ones}, sums[rt]);
}
// #endregion

// #region p-again
// P_ij by the operations of docs/backward.md, "P must be the forward's": scale, round, subtract m, as phase 09 does.
__device__ __forceinline__ float p_again(float s, float scale_log2, float m, float inverse_l) {
  return ex2_approx_ftz(s * scale_log2 - m) * inverse_l;
}
// #endregion

}  // namespace flash::phase20::inline FLASH_MACHINE
