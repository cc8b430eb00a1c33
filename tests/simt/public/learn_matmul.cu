// learn_matmul.cu: calls the products of gau-nernst/learn-cuda's 02a_matmul_simt/matmul.cu with matrices of 128 x 128.
// Use: flash check learn_matmul.cu CLONE/02a_matmul_simt/matmul.cu
#include "verify.hpp"

using Product = void(const float* A, const float* B, float* C, int M, int N, int K);
Product matmul_v1, matmul_v2, matmul_v3, matmul_v4, matmul_v5, matmul_v6a, matmul_v6b;

int main() {
  const int n = 128;
  const auto a = filled(n * n, 1), b = filled(n * n, 2);
  const std::vector<float> zero(n * n);
  const auto wanted = product(a, b, zero, n, n, n, 1, 0);
  float *d_a = uploaded(a), *d_b = uploaded(b);
  int number = 0;
  for (Product* multiply : {matmul_v1, matmul_v2, matmul_v3, matmul_v4, matmul_v5, matmul_v6a, matmul_v6b}) {
    float* d_c;
    cudaMalloc(&d_c, n * n * sizeof(float));
    multiply(d_a, d_b, d_c, n, n, n);
    agrees("matmul", ++number, downloaded(d_c, n * n), wanted, 1e-4);
  }
  return wrong;
}
