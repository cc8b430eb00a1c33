// llmc_layernorm.cu: calls kernels of karpathy/llm.c's layernorm_forward.cu with 2 x 32 rows of 384.
// Use: flash check -I CLONE/dev/cuda llmc_layernorm.cu -- 1 2 3 …
#define main their_main
#include "layernorm_forward.cu"
#undef main

#include "verify.hpp"

int main(int argc, char** argv) {
  const int B = 2, T = 32, C = 384;
  const auto inp = filled(B * T * C, 1), weight = filled(C, 2), bias = filled(C, 3);
  std::vector<float> out(B * T * C), mean(B * T), rstd(B * T);
  layernorm_forward_cpu(out.data(), mean.data(), rstd.data(), inp.data(), weight.data(), bias.data(), B, T, C);
  const float *d_inp = uploaded(inp), *d_weight = uploaded(weight), *d_bias = uploaded(bias);
  float *d_out, *d_mean, *d_rstd;
  cudaMalloc(&d_out, out.size() * 4), cudaMalloc(&d_mean, mean.size() * 4), cudaMalloc(&d_rstd, rstd.size() * 4);
  for (int i = 1; i < argc; ++i) {
    const int kernel = std::atoi(argv[i]);
    layernorm_forward(kernel, d_out, d_mean, d_rstd, d_inp, d_weight, d_bias, B, T, C, 128);
    agrees("layernorm", kernel, downloaded(d_out, out.size()), {out.begin(), out.end()}, 1e-4);
  }
  return wrong;
}
