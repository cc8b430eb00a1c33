// dropped.cuh: the variant of dropout: P loses elements on its way to V, and dP on its way back. What it changes
// in the kernels of phases 13, 18 to 20 and 24 are the lines behind `Variant::drops`.
// Use: phase19::Attention::launch<T, D, Br, Bc, Dropped<Grouped<int>>>(p);
#pragma once
#include "phases/29-dropout/flags.cuh"
#include "phases/interface/variant.cuh"

namespace flash::inline FLASH_MACHINE {

// #region variant: the variant of the phase before, and a generator
// P is dropped when it has been rounded and summed: l and LSE know nothing of it. `head` counts those of all batch
// entries; rows and keys are counted within their sequence.
template <class Base>
struct Dropped : Base {
  static constexpr bool drops = true;
  Keeper keeper;
  float factor;  // 1 / the share that is kept

  template <class T>
  static Dropped of(const DeviceProblem<T>& p) {
    return {Base::of(p), Keeper::of(p.dropout), p.dropout.factor()};
  }
  // #endregion

  // #region forward: P
  template <int kKeys, int N>
  __device__ __forceinline__ void flags_of_rows(unsigned (&flags)[N], unsigned head, unsigned H, unsigned row,
                                                unsigned first_key) const {
    RowFlags::draw<kKeys>(flags, keeper, head % H, head / H, row, first_key);
  }
  // The two elements of group n (8 keys) of the lane's row r: ones where they are kept.
  template <int N>
  __device__ __forceinline__ unsigned pair_of_rows(const unsigned (&flags)[N], int n, int r) const {
    return RowFlags::pair(flags[n / 8], n, r);
  }
  template <int kTiles, int N>
  __device__ __forceinline__ void drop_rows(unsigned (&p)[kTiles][4], const unsigned (&flags)[N]) const {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) p[i / 4][i % 4] &= RowFlags::pair(flags[i / 16], i / 2, i % 2);
  }
  // #endregion

  // #region backward: Pᵀ and dP
  template <int kRows, int N>
  __device__ __forceinline__ void flags_of_keys(unsigned (&flags)[N], unsigned head, unsigned H, unsigned first_row,
                                                unsigned first_key) const {
    KeyFlags::draw<kRows>(flags, keeper, head % H, head / H, first_row, first_key);
  }
  template <int kTiles, int N>
  __device__ __forceinline__ void drop_keys(unsigned (&p)[kTiles][4], const unsigned (&flags)[N]) const {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) p[i / 4][i % 4] &= KeyFlags::pair(flags[i / 16], i / 2, i % 2);
  }
  // The gradient of what is left: as much larger as P was.
  template <int kNumbers, int N>
  __device__ __forceinline__ void drop_gradient(float (&dp)[kNumbers], const unsigned (&flags)[N]) const {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i)
      dp[i] = KeyFlags::one(flags[i / 32], i / 4, row_of(i), i % 2) ? dp[i] * factor : 0.0f;
  }
  // The same where rows are queries.
  template <int kNumbers>
  __device__ __forceinline__ void drop_gradient(float (&dp)[kNumbers], unsigned head, unsigned H, unsigned row,
                                                unsigned first_key) const {
    unsigned flags[(2 * kNumbers + 63) / 64];
    flags_of_rows<2 * kNumbers>(flags, head, H, row, first_key);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i)
      dp[i] = RowFlags::one(flags[i / 32], i / 4, row_of(i), i % 2) ? dp[i] * factor : 0.0f;
  }
  // #endregion

  // #region handover: P for another warp, with a sign where it is left out
  // Phase 20's warps of P hand it over whole, for dS; a sign, which P has no use for, says what is dropped.
  template <int kNumbers, int N>
  __device__ __forceinline__ void mark(float (&p)[kNumbers], const unsigned (&flags)[N]) const {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      const int size = __float_as_int(p[i]) & 0x7fffffff;
      p[i] = __int_as_float(KeyFlags::one(flags[i / 32], i / 4, row_of(i), i % 2) ? size : size | ~0x7fffffff);
    }
  }
  __device__ __forceinline__ void drop_marked(float (&dp)[4], float4& p) const {
    float* const marked[4] = {&p.x, &p.y, &p.z, &p.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      dp[i] = __float_as_int(*marked[i]) < 0 ? 0.0f : dp[i] * factor;
      *marked[i] = fabsf(*marked[i]);
    }
  }
};
// #endregion

}  // namespace flash::inline FLASH_MACHINE
