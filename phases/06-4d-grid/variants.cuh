// Two other grids for phase 06's kernel, which other projects use: same block, same bytes, another order of the blocks.
// One: (Q tile), all heads in a loop inside the block. Three: (batch, head, Q tile), where x, the batch, runs fastest.
// Use: phase06::forward_variant(problem, Grid::One, Where::Sim); the comparison is in attention.hpp and the notebook.
#pragma once
#include "phases/06-4d-grid/attention.cuh"
#include "phases/06-4d-grid/grid.hpp"

namespace flash::phase06::inline FLASH_MACHINE {

// #region one-dimension
// Grid (Q tile): few blocks, each B · H times as long; a chip with more room idles in part. No barrier is needed
// between two heads: the last one inside attend() says that all threads have finished with the tiles.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br)
    attention_one(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, H, Sk, D]*/,
                  Heads<const T> V /*[B, H, Sk, D]*/, Heads<T> O /*[B, H, Sq, D]*/, float scale_log2, int B, int H) {
  for (int b = 0; b < B; ++b)
    for (int h = 0; h < H; ++h)
      attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), scale_log2, blockIdx.x);
}
// #endregion

// #region three-dimensions
// Grid (batch, head, Q tile): as many blocks as phase 06's, but neighbours belong to different heads and share no K, V.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br)
    attention_three(Heads<const T> Q /*[B, H, Sq, D]*/, Heads<const T> K /*[B, H, Sk, D]*/,
                    Heads<const T> V /*[B, H, Sk, D]*/, Heads<T> O /*[B, H, Sq, D]*/, float scale_log2, int, int) {
  const int b = blockIdx.x, h = blockIdx.y;
  attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), scale_log2, blockIdx.z);
}
// #endregion

// #region launch-variant
template <Grid kGrid>
struct Variant : Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    const auto kernel = kGrid == Grid::One ? attention_one<T, D, Br, Bc> : attention_three<T, D, Br, Bc>;
    constexpr std::size_t shared_bytes = sizeof(Tiles<D, Br, Bc>);
    allow_shared_memory(kernel, shared_bytes);
    const auto [x, y, z] = extents_of(kGrid, p.B, p.H, (p.Q.rows + Br - 1) / Br);
    kernel<<<dim3(x, y, z), Br, shared_bytes, p.stream>>>(p.Q, p.K, p.V, p.O, p.scale_log2, p.B, p.H);
  }
};

inline Run run_variant(const Problem<float>& p, Grid grid, const MachineOptions& options) {
  if (grid == Grid::One) return run_pass<variant_features, Variant<Grid::One>>(p, options);
  if (grid == Grid::Three) return run_pass<variant_features, Variant<Grid::Three>>(p, options);
  return run_pass<variant_features, Attention>(p, options);
}
// #endregion

}  // namespace flash::phase06::inline FLASH_MACHINE
