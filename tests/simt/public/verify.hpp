// verify.hpp: inputs and a comparison for the programs beside it, which call public kernels with small sizes.
// Use: #include "verify.hpp"; filled(n, seed); agrees("kernel 3", got, wanted, tolerance) prints and counts.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

inline std::vector<float> filled(std::size_t count, unsigned seed) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1;
  return values;
}

inline float* uploaded(const std::vector<float>& values) {
  float* x;
  cudaMalloc(&x, values.size() * sizeof(float));
  cudaMemcpy(x, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
  return x;
}
inline std::vector<float> downloaded(const float* x, std::size_t count) {
  std::vector<float> values(count);
  cudaMemcpy(values.data(), x, count * sizeof(float), cudaMemcpyDeviceToHost);
  return values;
}

inline int wrong = 0;
inline void agrees(const char* what, int kernel, const std::vector<float>& got, const std::vector<double>& wanted,
                   double tolerance) {
  bool right = true;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    right = right && std::fabs(got[i] - wanted[i]) <= tolerance;  // false for NaN
  std::printf("%s %d: %s\n", what, kernel, right ? "right" : "WRONG");
  wrong += !right;
}

// C = alpha A B + beta C, row by row: A [m,k], B [k,n], C [m,n].
using Floats = std::vector<float>;
inline std::vector<double> product(const Floats& a, const Floats& b, const Floats& c, int m, int n, int k, double alpha,
                                   double beta) {
  std::vector<double> result(c.begin(), c.end());
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int x = 0; x < k; ++x) sum += static_cast<double>(a[i * k + x]) * b[x * n + j];
      result[i * n + j] = alpha * sum + beta * c[i * n + j];
    }
  return result;
}
// The softmax of each row of n.
inline std::vector<double> softmax_of(const std::vector<float>& x, int m, int n) {
  std::vector<double> result(x.begin(), x.end());
  for (int i = 0; i < m; ++i) {
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < n; ++j) most = std::fmax(most, result[i * n + j]);
    for (int j = 0; j < n; ++j) sum += result[i * n + j] = std::exp(result[i * n + j] - most);
    for (int j = 0; j < n; ++j) result[i * n + j] /= sum;
  }
  return result;
}
