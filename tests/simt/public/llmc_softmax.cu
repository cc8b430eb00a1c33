// llmc_softmax.cu: calls kernels of karpathy/llm.c's softmax_forward.cu with 32 rows of 1000.
// Use: flash check -I CLONE/dev/cuda llmc_softmax.cu -- 1 2 3 …
#define main their_main
#include "softmax_forward.cu"
#undef main

#include "verify.hpp"

int main(int argc, char** argv) {
  const int rows = 32, columns = 1000;
  const auto inp = filled(rows * columns, 1);
  const float* d_inp = uploaded(inp);
  float* d_out;
  cudaMalloc(&d_out, rows * columns * sizeof(float));
  for (int i = 1; i < argc; ++i) {
    const int kernel = std::atoi(argv[i]);
    softmax_forward(kernel, d_out, d_inp, rows, columns, 128);
    agrees("softmax", kernel, downloaded(d_out, rows * columns), softmax_of(inp, rows, columns), 1e-5);
  }
  return wrong;
}
