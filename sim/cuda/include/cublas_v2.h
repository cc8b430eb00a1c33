// cublas_v2.h: in place of cuBLAS's header of this name, for programs that ./flash check compiles: its products of
// matrices, as a plain kernel, which is checked and counted like any. The other functions are names alone, for files of
// kernels that have one line which measures them against the library: a call says that it is not simulated, and returns
// CUBLAS_STATUS_NOT_SUPPORTED. Meaning: cuBLAS Library, "cublas<t>gemm()", "cublasGemmStridedBatchedEx()".
// Use: #include <cublas_v2.h>, as with nvcc.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
using cudaDataType = cudaDataType_t;

struct flash_cublas {
  cudaStream_t stream = nullptr;
};
using cublasHandle_t = flash_cublas*;

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new flash_cublas;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

namespace flash::cuda {

// A matrix by columns, of a batch whose matrices are `stride` elements apart.
template <class T>
struct Columns {
  T* data;
  int ld;
  long long stride;
  __device__ T& at(int row, int column) const {
    return data[static_cast<long long>(blockIdx.z) * stride + static_cast<long long>(column) * ld + row];
  }
};
template <class T>
__device__ T value_of(T x) {
  return x;
}
__device__ inline float value_of(__half x) {
  return __half2float(x);
}
__device__ inline float value_of(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

__device__ inline float fused(float a, float b, float c) {
  return fmaf(a, b, c);
}
__device__ inline double fused(double a, double b, double c) {
  return fma(a, b, c);
}

// C = alpha op(A) op(B) + beta C, op(A) [m, k], op(B) [k, n]: a thread for each element of C, k from 0 on. Where beta is
// 0, C is not read.
template <class Sum, class T, class Result>
__global__ void cublas_gemm(bool transposes_a, bool transposes_b, int m, int n, int k, Sum alpha, Columns<const T> A,
                            Columns<const T> B, Sum beta, Columns<Result> C) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int j = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (i >= m || j >= n) return;
  Sum sum{};
  for (int l = 0; l < k; ++l) {
    const Sum a = value_of(transposes_a ? A.at(l, i) : A.at(i, l)),
              b = value_of(transposes_b ? B.at(j, l) : B.at(l, j));
    sum = fused(a, b, sum);
  }
  sum *= alpha;
  if (beta != 0) sum = fused(beta, static_cast<Sum>(value_of(C.at(i, j))), sum);
  C.at(i, j) = static_cast<Result>(sum);
}

template <class Sum, class T, class Result>
cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                    const Sum* alpha, Columns<const T> A, Columns<const T> B, const Sum* beta, Columns<Result> C,
                    int batch) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool transposes_a = op_a != CUBLAS_OP_N, transposes_b = op_b != CUBLAS_OP_N;
  if (m < 0 || n < 0 || k < 0 || batch < 0 || !alpha || !beta || A.ld < std::max(1, transposes_a ? k : m) ||
      B.ld < std::max(1, transposes_b ? n : k) || C.ld < std::max(1, m))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (m == 0 || n == 0 || batch == 0) return CUBLAS_STATUS_SUCCESS;
  const dim3 block(16, 16), grid((m + 15) / 16, (n + 15) / 16, batch);
  cublas_gemm<Sum, T, Result>
      <<<grid, block, 0, handle->stream>>>(transposes_a, transposes_b, m, n, k, *alpha, A, B, *beta, C);
  return cudaPeekAtLastError() == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

inline cublasStatus_t no_cublas(const char* function) {
  std::fprintf(stderr, "flash check: %s of cuBLAS is not simulated; call a kernel of your own\n", function);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace flash::cuda

inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                                int m, int n, int k, const float* alpha, const float* A, int lda,
                                                long long stride_a, const float* B, int ldb, long long stride_b,
                                                const float* beta, float* C, int ldc, long long stride_c, int batch) {
  return flash::cuda::gemm<float, float, float>(handle, op_a, op_b, m, n, k, alpha, {A, lda, stride_a},
                                                {B, ldb, stride_b}, beta, {C, ldc, stride_c}, batch);
}
inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                  int k, const float* alpha, const float* A, int lda, const float* B, int ldb,
                                  const float* beta, float* C, int ldc) {
  return cublasSgemmStridedBatched(handle, op_a, op_b, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1);
}
inline cublasStatus_t cublasDgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                  int k, const double* alpha, const double* A, int lda, const double* B, int ldb,
                                  const double* beta, double* C, int ldc) {
  return flash::cuda::gemm<double, double, double>(handle, op_a, op_b, m, n, k, alpha, {A, lda, 0}, {B, ldb, 0}, beta,
                                                   {C, ldc, 0}, 1);
}
// A and B of one type, C of that or of float; alpha, beta and sums are floats.
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                                 int m, int n, int k, const void* alpha, const void* A,
                                                 cudaDataType of_a, int lda, long long stride_a, const void* B,
                                                 cudaDataType of_b, int ldb, long long stride_b, const void* beta,
                                                 void* C, cudaDataType of_c, int ldc, long long stride_c, int batch,
                                                 cublasComputeType_t compute, cublasGemmAlgo_t) {
  const auto product = [&](auto a, auto c) {
    using T = decltype(a);
    using Result = decltype(c);
    return flash::cuda::gemm<float, T, Result>(
        handle, op_a, op_b, m, n, k, static_cast<const float*>(alpha), {static_cast<const T*>(A), lda, stride_a},
        {static_cast<const T*>(B), ldb, stride_b}, static_cast<const float*>(beta),
        {static_cast<Result*>(C), ldc, stride_c}, batch);
  };
  const bool floats = of_c == CUDA_R_32F;
  if (compute != CUBLAS_COMPUTE_16F && of_a == of_b && (floats || of_c == of_a)) {
    if (of_a == CUDA_R_32F) return product(float{}, float{});
    if (of_a == CUDA_R_16F) return floats ? product(__half{}, float{}) : product(__half{}, __half{});
    if (of_a == CUDA_R_16BF)
      return floats ? product(__nv_bfloat16{}, float{}) : product(__nv_bfloat16{}, __nv_bfloat16{});
  }
  return flash::cuda::no_cublas("such a product");
}
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                   int k, const void* alpha, const void* A, cudaDataType of_a, int lda, const void* B,
                                   cudaDataType of_b, int ldb, const void* beta, void* C, cudaDataType of_c, int ldc,
                                   cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, A, of_a, lda, 0, B, of_b, ldb, 0, beta, C, of_c,
                                    ldc, 0, 1, compute, algorithm);
}

// cublasLt.h uses it, too.
#define FLASH_NO_CUBLAS(function)             \
  template <class... Arguments>               \
  cublasStatus_t function(Arguments&&...) {   \
    return flash::cuda::no_cublas(#function); \
  }
FLASH_NO_CUBLAS(cublasHgemm)
FLASH_NO_CUBLAS(cublasSgemv)
FLASH_NO_CUBLAS(cublasDgemv)
FLASH_NO_CUBLAS(cublasSaxpy)
FLASH_NO_CUBLAS(cublasSdot)
