// Phase 24, provisional: the backward pass for D = 256 alone. The kernel is in wide.cuh.
// Run it: ctest -L phase24     The derivation: docs/backward.md
#pragma once
#include "phases/24-backward-fused/phase.hpp"
#include "phases/24-backward-fused/wide.cuh"

namespace flash::phase24::inline FLASH_MACHINE {

struct Gradients {
  template <int D, int Br, int Bc>
  using Shared = wide::Tiles;

  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const Backward<T> a = phase20::arguments_of(p);
    auto* const pieces = static_cast<phase23::RowPiece*>(p.workspace[6]);
    const auto row_blocks = static_cast<unsigned>(std::int64_t{p.B} * p.H * a.rows / 64);
    if (row_blocks > 0) phase23::row_pieces<T, D><<<row_blocks, 256, sizeof(phase23::PieceSums), p.stream>>>(a, pieces);
    wide::launch(p, a, pieces);
    phase20::launch_dq<D>(p, a);
  }
};

}  // namespace flash::phase24::inline FLASH_MACHINE
