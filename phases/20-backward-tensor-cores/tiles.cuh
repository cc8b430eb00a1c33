// tiles.cuh: how phase 20's kernel for dK and dV divides its work, what a block has in shared memory, and how the
// numbers of a Q tile's rows come there.
// Use: auto& tiles = shared<Tiles<D, Br, Bc>>();  load_rows<Br>(tiles.rows[stage], m, inverse_l, delta);
#pragma once
#include "phases/13-instruction-diet/copies.cuh"

namespace flash::phase20::inline FLASH_MACHINE {

// #region layout
// A block owns a K/V tile; Q tiles stream by. Warps 0 … 3 make P and dV, warps 4 … 7 dS and dK; warps w and w + 4 have
// the same keys. What does not fit their registers at once is done in steps of `kStep` queries.
template <int D, int Br, int Bc>
struct Layout {
  static constexpr int kRowTiles = Bc / 64, kKeys = 16 * kRowTiles;  // of a warp; a row tile has 16 keys
  static constexpr int kStep = Br < 64 ? Br : 64, kSteps = Br / kStep;
  static_assert(4 * kSteps <= 15, "a named barrier for each pair of warps and step: a block has 15");
  static constexpr bool kKeepOwn = D <= 64;  // K's fragments, or V's, stay in registers
  // dQ of a Q tile: each of the eight warps makes a rectangle of it.
  static constexpr int kRowsOfDQ = Br >= 64 ? 32 : 16;
  static constexpr int kColumnsOfDQ = D * Br / kRowsOfDQ / 8;
};

// Shared memory of a block. 16-bit elements as bits; element (row, column) of a tile is at [row][swizzled(…)].
template <int D, int Br, int Bc>
struct Tiles {
  using L = Layout<D, Br, Bc>;
  static constexpr int kPitch = Br < 64 ? 64 : Br;  // of dS: the swizzle wants rows of 128 bytes

  alignas(16) std::uint16_t K[Bc][D];
  alignas(16) std::uint16_t V[Bc][D];     // in the end dK, on its way out
  alignas(16) std::uint16_t Q[2][Br][D];  // tile i is in stage i % 2; in the end dV, on its way out
  alignas(16) std::uint16_t dO[2][Br][D];
  alignas(16) std::uint16_t dS[2][Bc][kPitch];  // dSᵀ, rounded: of tile i in i % 2
  // P in fp32, from a warp to the one that has the same keys, in the order of their registers.
  alignas(16) float4 P[4][L::kSteps][L::kRowTiles * L::kStep / 8][32];
  struct {
    alignas(16) float m[Br];
    alignas(16) float inverse_l[Br];
    alignas(16) float delta[Br];
  } rows[2];
};
// #endregion

// #region copies
// Begins to copy a Q tile's numbers: 4 at a time.
template <int Br, class Rows>
__device__ void load_rows(Rows& rows, const float* m, const float* inverse_l, const float* delta) {
  const int i = threadIdx.x * 4;
  if (i < Br)
    cp_async_16(&rows.m[i], &m[i]);
  else if (i < 2 * Br)
    cp_async_16(&rows.inverse_l[i - Br], &inverse_l[i - Br]);
  else if (i < 3 * Br)
    cp_async_16(&rows.delta[i - 2 * Br], &delta[i - 2 * Br]);
}
// #endregion

}  // namespace flash::phase20::inline FLASH_MACHINE
