// matmul.cu: C = A B: tiles of shared memory, then tiles of registers on top, where each thread computes 4 x 4
// elements. Sizes need not be multiples of the tiles. The integers in the floats make the sums exact.
// ./flash check tests/simt/programs/matmul.cu; nvcc -arch=native matmul.cu. With an argument: a barrier is missing.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kTile = 16;

__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K, bool broken) {
  __shared__ float a[kTile][kTile], b[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += kTile) {
    a[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0;  //@ race
    b[y][x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0;
    __syncthreads();  // the tiles are there
    for (int k = 0; k < kTile; ++k) sum = fmaf(a[y][k], b[k][x], sum);
    if (!broken) __syncthreads();  // nobody reads them any more
  }
  if (row < M && column < N) C[row * N + column] = sum;
}

// 64 x 64 elements of C per block of 256 threads, 4 x 4 per thread.
__global__ void __launch_bounds__(256) in_registers(const float* A, const float* B, float* C, int M, int N, int K) {
  constexpr int kSide = 64, kDepth = 8, kEach = 4;
  __shared__ alignas(16) float a[kDepth][kSide + 4], b[kDepth][kSide];
  const int t = threadIdx.x, x = t % 16 * kEach, y = t / 16 * kEach;
  float sum[kEach][kEach] = {};
  for (int k0 = 0; k0 < K; k0 += kDepth) {
    for (int i = t; i < kSide * kDepth; i += 256) {
      const int row = blockIdx.y * kSide + i / kDepth, k = k0 + i % kDepth;
      a[i % kDepth][i / kDepth] = row < M && k < K ? A[row * K + k] : 0;
    }
    for (int i = t; i < kSide * kDepth; i += 256) {
      const int k = k0 + i / kSide, column = blockIdx.x * kSide + i % kSide;
      b[i / kSide][i % kSide] = k < K && column < N ? B[k * N + column] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const float4 u = *reinterpret_cast<const float4*>(&a[k][y]), v = *reinterpret_cast<const float4*>(&b[k][x]);
      const float left[kEach] = {u.x, u.y, u.z, u.w}, right[kEach] = {v.x, v.y, v.z, v.w};
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) {
      const int row = blockIdx.y * kSide + y + i, column = blockIdx.x * kSide + x + j;
      if (row < M && column < N) C[row * N + column] = sum[i][j];
    }
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int M = 75, N = 90, K = 50;
  std::vector<float> A(M * K), B(K * N), C(M * N), expected(M * N, 0.0f);
  for (int i = 0; i < M * K; ++i) A[i] = static_cast<float>(i % 11 - 5);
  for (int i = 0; i < K * N; ++i) B[i] = static_cast<float>(i % 7 - 3);
  for (int i = 0; i < M; ++i)
    for (int k = 0; k < K; ++k)
      for (int j = 0; j < N; ++j) expected[i * N + j] += A[i * K + k] * B[k * N + j];
  float *d_A, *d_B, *d_C;
  CUDA(cudaMalloc(&d_A, A.size() * sizeof(float)));
  CUDA(cudaMalloc(&d_B, B.size() * sizeof(float)));
  CUDA(cudaMalloc(&d_C, C.size() * sizeof(float)));
  CUDA(cudaMemcpy(d_A, A.data(), A.size() * sizeof(float), cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(d_B, B.data(), B.size() * sizeof(float), cudaMemcpyHostToDevice));
  int wrong = 0;
  for (int kernel = 0; kernel < 2; ++kernel) {
    CUDA(cudaMemset(d_C, 0xff, C.size() * sizeof(float)));
    if (kernel == 0)
      tiled<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(kTile, kTile)>>>(d_A, d_B, d_C, M, N, K, broken);
    else
      in_registers<<<dim3((N + 63) / 64, (M + 63) / 64), 256>>>(d_A, d_B, d_C, M, N, K);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(C.data(), d_C, C.size() * sizeof(float), cudaMemcpyDeviceToHost));
    wrong += C != expected;
  }
  for (float* array : {d_A, d_B, d_C}) CUDA(cudaFree(array));
  std::printf("matmul: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
