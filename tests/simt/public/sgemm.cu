// sgemm.cu: calls kernels of siboehm/SGEMM_CUDA through its own run_kernel, with matrices of 128 x 128.
// Use: flash check -I CLONE/src sgemm.cu CLONE/src/runner.cu -- 1 2 3 …
#include <runner.cuh>

#include "verify.hpp"

int main(int argc, char** argv) {
  const int n = 128;
  const auto a = filled(n * n, 1), b = filled(n * n, 2), c = filled(n * n, 3);
  const auto wanted = product(a, b, c, n, n, n, 0.5, 3);
  float *d_a = uploaded(a), *d_b = uploaded(b);
  for (int i = 1; i < argc; ++i) {
    float* d_c = uploaded(c);
    run_kernel(std::atoi(argv[i]), n, n, n, 0.5f, d_a, d_b, 3.0f, d_c, nullptr);
    agrees("kernel", std::atoi(argv[i]), downloaded(d_c, n * n), wanted, 1e-4);
  }
  return wrong;
}
