// learn_matmul_sm120.cu: calls the products of gau-nernst/learn-cuda's 02c_matmul_sm120, of bfloat16 and of bytes: 256
// x 128 elements, sums of 256, B by columns. Which: the numbers of the command line.
// Use: flash check learn_matmul_sm120.cu CLONE/02c_matmul_sm120/matmul_v*.cu -- 0 1 2
#include <cstdint>

#include "bfloat16.hpp"

using Product = void(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K);
using ProductOfBytes = void(const int8_t* A, const int8_t* B, int* C, int M, int N, int K);
Product matmul_v0_bf16, matmul_v1_bf16, matmul_v2_bf16, matmul_v3_bf16;
ProductOfBytes matmul_v0_int8, matmul_v1_int8, matmul_v2_int8, matmul_v3_int8;

// Rows of `count` become columns.
template <class T>
std::vector<T> transposed(const std::vector<T>& rows, int count) {
  std::vector<T> columns;
  for (int j = 0; j < count; ++j)
    for (std::size_t i = 0; i < rows.size() / count; ++i) columns.push_back(rows[i * count + j]);
  return columns;
}
std::vector<int8_t> bytes(Floats values) {
  std::vector<int8_t> result;
  for (const float value : values) result.push_back(static_cast<int8_t>(value * 127));
  return result;
}

int main(int argc, char** argv) {
  const int m = 256, n = 128, k = 256;
  const auto a = rounded(filled(m * k, 1)), b = rounded(filled(k * n, 2));
  const auto wanted = product(a, b, Floats(m * n), m, n, k, 1, 0);
  __nv_bfloat16 *d_a = uploaded_bf16(a), *d_b = uploaded_bf16(transposed(b, n));
  Product* const of_bf16[] = {matmul_v0_bf16, matmul_v1_bf16, matmul_v2_bf16, matmul_v3_bf16};
  ProductOfBytes* const of_bytes[] = {matmul_v0_int8, matmul_v1_int8, matmul_v2_int8, matmul_v3_int8};
  for (int i = 1; i < argc; ++i) {
    const int kernel = std::atoi(argv[i]);
    __nv_bfloat16* d_c;
    cudaMalloc(&d_c, m * n * sizeof(__nv_bfloat16));
    of_bf16[kernel](d_a, d_b, d_c, m, n, k);
    agrees("bf16", kernel, downloaded_bf16(d_c, m * n), wanted, 0.15);  // |C| is up to 30: a bit of it is 1/8
  }

  const auto narrow_a = bytes(a), narrow_b = bytes(b), columns = transposed(narrow_b, n);
  const Floats of_a(narrow_a.begin(), narrow_a.end()), of_b(narrow_b.begin(), narrow_b.end());
  const auto whole = product(of_a, of_b, Floats(m * n), m, n, k, 1, 0);
  int8_t *bytes_a, *bytes_b;
  cudaMalloc(&bytes_a, narrow_a.size()), cudaMalloc(&bytes_b, columns.size());
  cudaMemcpy(bytes_a, narrow_a.data(), narrow_a.size(), cudaMemcpyHostToDevice);
  cudaMemcpy(bytes_b, columns.data(), columns.size(), cudaMemcpyHostToDevice);
  for (int i = 1; i < argc; ++i) {
    const int kernel = std::atoi(argv[i]);
    int* d_c;
    std::vector<int> got(m * n);
    cudaMalloc(&d_c, m * n * sizeof(int));
    of_bytes[kernel](bytes_a, bytes_b, d_c, m, n, k);
    cudaMemcpy(got.data(), d_c, m * n * sizeof(int), cudaMemcpyDeviceToHost);
    agrees("int8", kernel, {got.begin(), got.end()}, whole, 0);
  }
  return wrong;
}
