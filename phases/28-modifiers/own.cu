// own.cu: write your own attention: a modifier, phase 13's kernel that calls it, a loop on the CPU that says the same.
// Change Mine and `meant`; nothing else need change. Needs no GPU, and goes through nvcc unchanged.
// Run it: ./flash check -std=c++20 phases/28-modifiers/own.cu
#include <cmath>
#include <cstdio>
#include <vector>

#include "phases/13-instruction-diet/attention.cuh"
#include "phases/28-modifiers/modified.cuh"

// #region mine
using namespace flash;

// What becomes of s = scale · q·k, of query i and key j of head h of batch entry b. Its members are its parameters.
struct Mine {
  float slope;

  __device__ float operator()(float s, int /*b*/, int /*h*/, int i, int j) const {
    return s - slope * std::abs(static_cast<float>(i - j));
  }
  template <class T>
  static Mine of(const DeviceProblem<T>&) {
    return {0.25f};
  }
};
// The same, for the loop on the CPU.
double meant(double s, int /*b*/, int /*h*/, int i, int j) {
  return s - 0.25 * std::abs(i - j);
}
// #endregion

// #region own-main
int main() {
  constexpr int H = 2, N = 100, D = 64, kNumbers = H * N * D;
  std::vector<__half> host[3];  // Q, K, V: [1, H, N, D], numbers between -1 and 1
  __half* device[4];            // and O
  unsigned drawn = 1;
  for (int x = 0; x < 4; ++x) {
    cudaMalloc(&device[x], kNumbers * sizeof(__half));
    if (x == 3) break;
    for (int i = 0; i < kNumbers; ++i) {
      drawn = drawn * 1664525u + 1013904223u;
      host[x].push_back(__float2half(static_cast<float>(drawn >> 8) / 8388608.0f - 1));
    }
    cudaMemcpy(device[x], host[x].data(), kNumbers * sizeof(__half), cudaMemcpyHostToDevice);
  }
  const auto heads = [](auto* data) {
    return Heads<std::remove_pointer_t<decltype(data)>>{data, kNumbers, N * D, D, N, D};
  };
  DeviceProblem<__half> p{};
  p.Q = heads(static_cast<const __half*>(device[0])), p.K = heads(static_cast<const __half*>(device[1]));
  p.V = heads(static_cast<const __half*>(device[2])), p.O = heads(device[3]);
  p.scale = 0.125f, p.scale_log2 = scale_log2(p.scale), p.band = Mask::none().band(N, N);
  p.B = 1, p.H = p.Hk = H;
  phase13::Attention::launch<__half, D, 128, 64, Modified<PlainOf<std::int64_t>, Mine>>(with_scores_of<Mine>(p));
  std::vector<__half> O(kNumbers);
  cudaMemcpy(O.data(), device[3], kNumbers * sizeof(__half), cudaMemcpyDeviceToHost);

  double worst = 0;
  for (int h = 0; h < H; ++h)
    for (int i = 0; i < N; ++i) {
      const auto number = [&](const std::vector<__half>& x, int row, int d) {
        return static_cast<double>(__half2float(x[(h * N + row) * D + d]));
      };
      double sum = 0, o[D] = {};
      for (int j = 0; j < N; ++j) {
        double s = 0;
        for (int d = 0; d < D; ++d) s += number(host[0], i, d) * number(host[1], j, d);
        const double weight = std::exp(meant(s * 0.125, 0, h, i, j));
        sum += weight;
        for (int d = 0; d < D; ++d) o[d] += weight * number(host[2], j, d);
      }
      for (int d = 0; d < D; ++d) worst = std::max(worst, std::abs(number(O, i, d) - o[d] / sum));
    }
  for (__half* x : device) cudaFree(x);
  const bool right = worst < 1e-3;
  std::printf("O is off by at most %.1e: %s\n", worst, right ? "the kernel and the loop agree" : "they differ");
  return right ? 0 : 3;
}
// #endregion
