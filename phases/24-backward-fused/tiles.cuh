// tiles.cuh: what a block of phase 24's kernel has in shared memory, and who waits for whom; D = 256 has its own in
// wide.cuh.
// Use: auto& tiles = shared<Tiles<D, Br, Bc>>();
#pragma once
#include "phases/24-backward-fused/pieces.cuh"

namespace flash::phase24::inline FLASH_MACHINE {

// #region tiles: shared memory of a block, and its barriers
template <int D, int Br, int Bc>
struct Tiles {
  static constexpr int kStages = 2, kKeys = Bc;            // one Q tile is multiplied while the next one is loaded
  alignas(1024) std::uint16_t K[Bc / 64][D / 64][64][64];  // of each warpgroup; in the end dK, on its way out
  alignas(1024) std::uint16_t V[Bc / 64][D / 64][64][64];  // likewise dV
  alignas(1024) std::uint16_t Q[kStages][D / 64][Br][64];
  alignas(1024) std::uint16_t dO[kStages][D / 64][Br][64];
  alignas(1024) std::uint16_t dS[kStages][Br / 64][Bc][64];  // dSᵀ, rounded: [panel of queries][key][query]
  alignas(1024) float4 dQ[kStages][Br / 16][D / 8][32];      // on its way out, as it lies in dQ_sum, or rounded
  RowPiece rows[kStages][Br / 64];
  alignas(16) float centre[D + 4];  // behind it: does it matter? are any of the head's rows extreme?
  Share shares[2];                  // what the block does, and does next
  // barrier         who arrives                     how many       who waits               for what
  // share_ring      the loading thread              1              all others              the share is there
  //   .empty        a lane of each consumer's warp, Bc / 16        the loading thread      nobody reads it any more
  //                 and the places' threads         + kStages
  // K_ring.full     the loading thread              1, and bytes   consumers, before S     K is there, and centre
  // K_ring.empty    a thread of each warpgroup      Bc / 64        the loading thread      dK has left from there
  // V_ring          as K_ring, but before dP; dV
  // Q_ring.full     the loading thread              1, and bytes   consumers, before S     Q, the numbers of its rows
  // Q_ring.empty    a lane of each consumer's warp  Bc / 16        the loading thread      nobody reads them any more
  // dO_ring         as Q_ring, but before dP
  // dS_ring.full    a lane of each consumer's warp  Bc / 16        whose turn dQ is        dS of all keys is there
  // dS_ring.empty   a lane of each of its warps     4              consumers, before dS    dQ has been made of it
  // dQ_ring.full    a lane of each of its warps     4              the place's thread      dQ of a tile is there
  // dQ_ring.empty   the place's thread              1, and bytes   whose turn dQ is        it is free; others' dQ there
  Ring<2> share_ring;
  Ring<1> K_ring, V_ring;
  Ring<kStages> Q_ring, dO_ring, dS_ring, dQ_ring;
};
// #endregion

}  // namespace flash::phase24::inline FLASH_MACHINE
