// Two other grids for phase 06's kernel, as found in the wild: same block, same bytes, another order and parallelism.
// One: (Q tile), all heads in a loop inside the block. Three: (batch, head, Q tile), where x, the batch, runs fastest.
// Use: phase06::forward_variant(problem, Grid::One, Where::Sim); the comparison is in attention.hpp and the notebook.
#pragma once
#include "phases/06-4d-grid/attention.cuh"
#include "phases/06-4d-grid/grid.hpp"

namespace flash::phase06::inline FLASH_MACHINE {

// Grid (Q tile): few blocks, each B · H times as long; a chip with more room than blocks idles. No barrier is needed
// between two heads: the last one inside attend() says that all threads have finished with the tiles.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br)
    attention_one(Tensor<const T> Q /*[B, H, Sq, D]*/, Tensor<const T> K /*[B, H, Sk, D]*/,
                  Tensor<const T> V /*[B, H, Sk, D]*/, Tensor<T> O /*[B, H, Sq, D]*/, float scale_log2, int B, int H) {
  for (int b = 0; b < B; ++b)
    for (int h = 0; h < H; ++h)
      attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), scale_log2, blockIdx.x);
}

// Grid (batch, head, Q tile): as many blocks as phase 06's, but neighbours belong to different heads and share no K, V.
template <class T, int D, int Br, int Bc>
__global__ void __launch_bounds__(Br)
    attention_three(Tensor<const T> Q /*[B, H, Sq, D]*/, Tensor<const T> K /*[B, H, Sk, D]*/,
                    Tensor<const T> V /*[B, H, Sk, D]*/, Tensor<T> O /*[B, H, Sq, D]*/, float scale_log2, int, int) {
  const int b = blockIdx.x, h = blockIdx.y;
  attend<T, D, Br, Bc>(Q.head(b, h), K.head(b, h), V.head(b, h), O.head(b, h), scale_log2, blockIdx.z);
}

Run run_variant(const Problem<float>& p, Grid shape, const MachineOptions& options) {
  Machine m(options);
  const Blocks blocks = choose_blocks<Tiles>(p.options, p.D(), shared_memory_of(m));
  const auto Q = upload_view(m, "Q", p.q), K = upload_view(m, "K", p.k), V = upload_view(m, "V", p.v);
  const auto O = alloc_view(m, "O", p.o);
  const Run result = timed(m, [&] {
    if (p.B() * p.H() == 0 || p.Sq() == 0) return;  // no row, no block
    with_sizes(p.D(), blocks, [&]<int D, int Br, int Bc>() {
      const auto [x, y, z] = grid_of(shape, p.B(), p.H(), (p.Sq() + Br - 1) / Br);
      const dim3 grid(x, y, z);
      const auto kernel = shape == Grid::One     ? attention_one<float, D, Br, Bc>
                          : shape == Grid::Three ? attention_three<float, D, Br, Bc>
                                                 : attention<float, D, Br, Bc>;
      launch<Tiles<D, Br, Bc>>(m, kernel, grid, dim3(Br), tensor<Tensor>(in(Q), p.q), tensor<Tensor>(in(K), p.k),
                               tensor<Tensor>(in(V), p.v), tensor<Tensor>(O.data(), p.o), scale_log2(p.scale()), p.B(),
                               p.H());
    });
  });
  download_view(m, p.o, O);
  return result;
}

}  // namespace flash::phase06::inline FLASH_MACHINE
