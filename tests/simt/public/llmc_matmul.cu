// llmc_matmul.cu: calls kernels of karpathy/llm.c's matmul_forward.cu: [128,64] by the transpose of [128,64], and bias.
// Use: flash check -I CLONE/dev/cuda -Xcompiler -fopenmp llmc_matmul.cu -- 1 4
#define main their_main
#include "matmul_forward.cu"
#undef main

#include "verify.hpp"

int main(int argc, char** argv) {
  const int B = 2, T = 64, C = 64, OC = 128;
  const auto inp = filled(B * T * C, 1), weight = filled(OC * C, 2), bias = filled(OC, 3);
  std::vector<float> out(B * T * OC);
  matmul_forward_cpu(out.data(), inp.data(), weight.data(), bias.data(), B, T, C, OC);
  const float *d_inp = uploaded(inp), *d_weight = uploaded(weight), *d_bias = uploaded(bias);
  float* d_out;
  cudaMalloc(&d_out, out.size() * sizeof(float));
  cublasCreate(&cublas_handle);
  for (int i = 1; i < argc; ++i) {
    const int kernel = std::atoi(argv[i]);
    matmul_forward(kernel, d_out, d_inp, d_weight, d_bias, B, T, C, OC, 16);
    agrees("matmul", kernel, downloaded(d_out, out.size()), {out.begin(), out.end()}, 1e-4);
  }
  return wrong;
}
