// fragments.cuh: asks a warp what its lanes hold. A tile's elements are their own numbers, 16 · row + column; the
// functions of ../fragments.cuh load fragments of it, and each lane writes down what it got.
// Run it: build/default/bin/phase10_notebook
#pragma once
#include "phases/10-tensor-cores/attention.cuh"

namespace flash::phase10::inline FLASH_MACHINE {

// #region ask
struct Squares {
  alignas(16) std::uint16_t numbers[16][16], identity[16][16];  // 16-bit floats, as bits
};

__global__ void __launch_bounds__(32) ask(unsigned* A /*[32, 4]*/, unsigned* B /*[32, 2], of rows*/,
                                          unsigned* B_transposed /*[32, 2], of columns*/, float* C /*[32, 4]*/) {
  Squares& squares = shared<Squares>();
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) {
    squares.numbers[i / 16][i % 16] = pack<__half>(i, 0);
    squares.identity[i / 16][i % 16] = pack<__half>(i / 16 == i % 16, 0);
  }
  __syncwarp();  // the squares are complete
  unsigned a[4], b[2], b_transposed[2], one[2];
  load_a(a, squares.numbers, 0, 0);
  load_b(b, squares.numbers, 0, 0);
  load_b_transposed(b_transposed, squares.numbers, 0, 0);
  load_b(one, squares.identity, 0, 0);
  float c[4] = {};
  mma_m16n8k16<__half>(c, a, one, c);  // numbers · identity: the left half of the numbers
  for (int i = 0; i < 4; ++i) A[4 * lane + i] = a[i], C[4 * lane + i] = c[i];
  for (int i = 0; i < 2; ++i) B[2 * lane + i] = b[i], B_transposed[2 * lane + i] = b_transposed[i];
}
// #endregion

}  // namespace flash::phase10::inline FLASH_MACHINE
