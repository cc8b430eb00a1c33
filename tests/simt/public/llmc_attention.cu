// llmc_attention.cu: calls kernels of karpathy/llm.c's attention_forward.cu: 2 sequences of 64 tokens, 2 heads of 32.
// Use: flash check -I CLONE/dev/cuda llmc_attention.cu -- 1 2
#define main their_main
#include "attention_forward.cu"
#undef main

#include "verify.hpp"

int main(int argc, char** argv) {
  const int B = 2, T = 64, C = 64, NH = 2, squares = B * NH * T * T;
  const auto inp = filled(B * T * 3 * C, 1);
  std::vector<float> out(B * T * C), preatt(squares), att(squares);
  attention_forward_cpu(out.data(), preatt.data(), att.data(), inp.data(), B, T, C, NH);
  const float* d_inp = uploaded(inp);
  float *d_out, *d_stats, *d_vaccum, *d_qkvr, *d_preatt, *d_att;
  cudaMalloc(&d_out, out.size() * 4), cudaMalloc(&d_stats, B * NH * T * 4), cudaMalloc(&d_vaccum, out.size() * 4);
  cudaMalloc(&d_qkvr, inp.size() * 4), cudaMalloc(&d_preatt, squares * 4), cudaMalloc(&d_att, squares * 4);
  cublasCreate(&cublas_handle);
  for (int i = 1; i < argc; ++i) {
    const int kernel = std::atoi(argv[i]);
    attention_forward(kernel, d_out, d_stats, d_vaccum, d_qkvr, d_preatt, d_att, const_cast<float*>(d_inp), B, T, C, NH,
                      64);
    agrees("attention", kernel, downloaded(d_out, out.size()), {out.begin(), out.end()}, kernel > 4 ? 1e-2 : 1e-4);
  }
  return wrong;
}
