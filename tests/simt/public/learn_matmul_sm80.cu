// learn_matmul_sm80.cu: calls the products of gau-nernst/learn-cuda's 02b_matmul_sm80 with matrices of 128 x 128, B by
// columns. Which: the words of the command line.
// Use: flash check learn_matmul_sm80.cu CLONE/02b_matmul_sm80/matmul_v1.cu (and v5, v6) -- v1 v2
#include <cstring>

#include "bfloat16.hpp"

using Product = void(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K);
Product matmul_v1, matmul_v2, matmul_v3, matmul_v4, matmul_v5, matmul_v6, matmul_v6b;

int main(int argc, char** argv) {
  const int n = 128;
  const auto a = rounded(filled(n * n, 1)), b = rounded(filled(n * n, 2));
  Floats columns(n * n);
  for (int k = 0; k < n; ++k)
    for (int j = 0; j < n; ++j) columns[j * n + k] = b[k * n + j];
  const auto wanted = product(a, b, Floats(n * n), n, n, n, 1, 0);
  __nv_bfloat16 *d_a = uploaded_bf16(a), *d_b = uploaded_bf16(columns);
  const struct {
    const char* name;
    Product* multiply;
  } all[] = {{"v1", matmul_v1}, {"v2", matmul_v2}, {"v3", matmul_v3},  {"v4", matmul_v4},
             {"v5", matmul_v5}, {"v6", matmul_v6}, {"v6b", matmul_v6b}};
  for (int i = 1; i < argc; ++i)
    for (const auto& one : all) {
      if (std::strcmp(one.name, argv[i]) != 0) continue;
      __nv_bfloat16* d_c;
      cudaMalloc(&d_c, n * n * sizeof(__nv_bfloat16));
      one.multiply(d_a, d_b, d_c, n, n, n);
      agrees(one.name, i, downloaded_bf16(d_c, n * n), wanted, 0.1);  // |C| is up to 20: a bit of it is 1/16
    }
  return wrong;
}
