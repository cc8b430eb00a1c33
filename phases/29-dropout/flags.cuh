// flags.cuh: dropout in the fragments of a product: which lane calls the generator for which keys, how lanes give each
// other what they have found, and how a lane reads its own elements. The layout: phases/10-tensor-cores/rows.cuh.
// Use: by phase 29's variant (dropped.cuh) and by the kernel that writes the mask out.
#pragma once
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/29-dropout/philox.cuh"

namespace flash::inline FLASH_MACHINE {

// #region exchange: 32 flags of a lane for other lanes become 32 flags of its own
// Both lanes of a pair keep half of their flags and give the other half away. By halves of a word, by bytes, and last
// by bits: those at odd places go to lanes whose bit `distance` is 0.
__device__ __forceinline__ unsigned exchange_halves(unsigned x, int distance) {
  const unsigned y = __shfl_xor_sync(0xffffffffu, x, distance);
  return __byte_perm(x, y, threadIdx.x & distance ? 0x3276 : 0x5410);
}
__device__ __forceinline__ unsigned exchange_bytes(unsigned x, int distance) {
  const unsigned y = __shfl_xor_sync(0xffffffffu, x, distance);
  return __byte_perm(x, y, threadIdx.x & distance ? 0x3715 : 0x6240);
}
__device__ __forceinline__ unsigned exchange_bits(unsigned x, int distance) {
  const unsigned y = __shfl_xor_sync(0xffffffffu, x, distance);
  const unsigned own = threadIdx.x & distance ? 0x55555555u : 0xaaaaaaaau;
  return (x & own) | (__funnelshift_l(y, y, threadIdx.x & distance ? 1 : 31) & ~own);
}
// #endregion

// #region rows: a row's eight keys lie in four lanes
// Rows are queries, columns keys: the forward pass. A word has 64 keys of the lane's two rows: 16 calls of the
// generator, four by each of the four lanes that share the rows. Lane t calls for each fourth group of 8 keys.
struct RowFlags {
  // Where group n = 4 c + s of row r is: the call number 2 c + r of lane s.
  static constexpr int call(int n, int r) { return n / 4 % 2 * 2 + r; }
  static constexpr int shift(int n, int r) { return 2 * call(n, r) + n % 4 / 2; }  // to the left, until it is bit 7 of:
  static constexpr int byte(int n, int e) { return n % 2 * 2 + e; }                // e: the pair's first or second key

  // 16 ones for each key of the lane's pair of group n that is kept.
  __device__ static __forceinline__ unsigned pair(unsigned flags, int n, int r) {
    return prmt(flags << shift(n, r), 0, n % 2 ? 0xbbaa : 0x9988);
  }
  __device__ static __forceinline__ bool one(unsigned flags, int n, int r, int e) {
    return flags >> (8 * byte(n, e) + 7 - shift(n, r)) & 1;
  }
  // Of kKeys keys from first_key on; row: the lane's first.
  template <int kKeys>
  __device__ static __forceinline__ void draw(unsigned (&flags)[(kKeys + 63) / 64], const Keeper& keeper, unsigned h,
                                              unsigned b, unsigned row, unsigned first_key) {
    // In pairs of calls; or two pairs at once, but phase 18 has no registers for that.
    [[maybe_unused]] constexpr int kAtOnce = kKeys > 64 ? 1 : 2;
    const unsigned octet = first_key / 8 + threadIdx.x % 4;
#pragma unroll
    for (int w = 0; w < (kKeys + 63) / 64; ++w) {
      unsigned mine = 0;
#pragma unroll kAtOnce
      for (int c = 0; c < (kKeys - 64 * w > 32 ? 2 : 1); ++c)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          mine |= keeper.of_eight(octet + 8 * w + 4 * c, row + 8 * r, h, b) >> (4 * c + 2 * r);
      flags[w] = exchange_bits(exchange_halves(mine, 1), 2);
    }
  }
};
// #endregion

// #region keys: a query's eight keys lie in eight lanes
// Rows are keys, columns queries: the backward pass. A word has the 16 keys of a warp and 64 queries, 16 of them the
// lane's: 32 calls, four by each of the eight lanes that share the queries. Lane g calls for its pair of each eighth
// group of 8 queries.
struct KeyFlags {
  // As above: to the left, until it is bit 7 of byte n % 4.
  static constexpr int shift(int n, int r, int e) { return 4 * r + 2 * e + n % 8 / 4; }

  __device__ static __forceinline__ unsigned pair(unsigned flags, int n, int r) {
    const unsigned byte = n % 4;
    return prmt(flags << shift(n, r, 0), flags << shift(n, r, 1), 0xcc88 + byte * 0x1111);
  }
  __device__ static __forceinline__ bool one(unsigned flags, int n, int r, int e) {
    return flags >> (8 * (n % 4) + 7 - shift(n, r, e)) & 1;
  }
  // Of kRows queries from first_row on; first_key: of the warp's 16.
  template <int kRows>
  __device__ static __forceinline__ void draw(unsigned (&flags)[(kRows + 63) / 64], const Keeper& keeper, unsigned h,
                                              unsigned b, unsigned first_row, unsigned first_key) {
    const unsigned row = first_row + 8 * lane_row() + lane_column();
#pragma unroll
    for (int w = 0; w < (kRows + 63) / 64; ++w) {
      unsigned mine = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) mine |= keeper.of_eight(first_key / 8 + k / 2, row + 64 * w + k % 2, h, b) >> 2 * k;
      flags[w] = exchange_bits(exchange_bytes(exchange_halves(mine, 8), 4), 16);
    }
  }
};
// #endregion

}  // namespace flash::inline FLASH_MACHINE
