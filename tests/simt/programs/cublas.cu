// cublas.cu: cuBLAS's products of matrices between kernels of one's own: transposed and not, batches, a part of C that
// is kept, halfs; on a stream. Each element against the host's own.
// ./flash check tests/simt/programs/cublas.cu; nvcc -arch=native cublas.cu -lcublas. With an argument: the product runs
// on another stream than the kernel that makes its operand, and does not wait for it.
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

constexpr int kM = 20, kN = 18, kK = 33, kBatch = 3;

__host__ __device__ float number(int i, int seed) {
  return static_cast<float>((i * 7919 + seed * 104729) % 1009 % 13 - 6);
}
__global__ void fill(float* x, int count, int seed) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) x[i] = number(i, seed);  //@ race
}
__global__ void narrow(const float* x, half* y, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = __float2half(x[i]);
}

int wrong = 0;
#define CUDA(call) \
  if (const int e = static_cast<int>(call); e != 0) std::printf("%s: %d\n", #call, e), ++wrong

// Element (i, j) of op(X), where X lies by columns of `ld` elements.
float element(int i, int j, bool transposed, int ld, int offset, int seed) {
  return number(offset + (transposed ? j + i * ld : i + j * ld), seed);
}

// C [kM, kN] by columns of `ld` = alpha op(A) op(B) + beta C, of numbers 1, 2 and 3; small integers, so sums are exact.
void expect(const char* what, const float* c, int ld, bool ta, int lda, bool tb, int ldb, float alpha, float beta,
            int a, int b, int offset) {
  for (int j = 0; j < kN; ++j)
    for (int i = 0; i < kM; ++i) {
      float sum = 0;
      for (int k = 0; k < kK; ++k) sum += element(i, k, ta, lda, a, 1) * element(k, j, tb, ldb, b, 2);
      const float expected = alpha * sum + (beta != 0 ? beta * number(offset + i + j * ld, 3) : 0);
      if (!(c[i + j * ld] == expected))
        std::printf("%s, C(%d, %d): %g, not %g\n", what, i, j, c[i + j * ld], expected), ++wrong;
    }
}

int main(int argc, char**) {
  const int size_a = kBatch * kM * kK, size_b = kBatch * kK * kN, ldc = kM + 2, size_c = kBatch * ldc * kN;
  float *a, *b, *c;
  half *narrow_a, *narrow_b;
  cudaStream_t stream;
  cublasHandle_t handle;
  CUDA(cudaMalloc(&a, size_a * sizeof *a));
  CUDA(cudaMalloc(&b, size_b * sizeof *b));
  CUDA(cudaMalloc(&c, size_c * sizeof *c));
  CUDA(cudaMalloc(&narrow_a, size_a * sizeof *narrow_a));
  CUDA(cudaMalloc(&narrow_b, size_b * sizeof *narrow_b));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cublasCreate(&handle));
  CUDA(cublasSetStream(handle, stream));
  std::vector<float> host(size_c);
  const auto download = [&] {
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(host.data(), c, size_c * sizeof *c, cudaMemcpyDeviceToHost));
  };
  const float one = 1, zero = 0, two = 2, half_of = 0.5f;
  const cudaStream_t of_b = argc > 1 ? nullptr : stream;

  fill<<<(size_a + 127) / 128, 128, 0, stream>>>(a, size_a, 1);
  fill<<<(size_c + 127) / 128, 128, 0, stream>>>(c, size_c, 3);
  fill<<<(size_b + 127) / 128, 128, 0, of_b>>>(b, size_b, 2);
  CUDA(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, kM, kN, kK, &two, a, kK, b, kK, &half_of, c, ldc));
  download();
  expect("A^T B", host.data(), ldc, true, kK, false, kK, 2, 0.5f, 0, 0, 0);

  CUDA(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, kM, kN, kK, &one, a, kM, kM * kK, b, kN, kK * kN,
                                 &zero, c, ldc, ldc * kN, kBatch));
  download();
  for (int i = 0; i < kBatch; ++i)
    expect("batch", host.data() + i * ldc * kN, ldc, false, kM, true, kN, 1, 0, i * kM * kK, i * kK * kN, 0);

  narrow<<<(size_a + 127) / 128, 128, 0, stream>>>(a, narrow_a, size_a);
  narrow<<<(size_b + 127) / 128, 128, 0, stream>>>(b, narrow_b, size_b);
  CUDA(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &one, narrow_a, CUDA_R_16F, kM, narrow_b, CUDA_R_16F,
                    kK, &zero, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  download();
  expect("halfs", host.data(), ldc, false, kM, false, kK, 1, 0, 0, 0, 0);
  if (cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &one, a, kM - 1, b, kK, &zero, c, ldc) !=
      CUBLAS_STATUS_INVALID_VALUE)
    std::printf("columns shorter than the matrix are taken\n"), ++wrong;
  CUDA(cublasDestroy(handle));
  CUDA(cudaStreamDestroy(stream));
  std::printf("cublas: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
