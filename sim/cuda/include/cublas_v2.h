// cublas_v2.h: in place of cuBLAS's header of this name, for programs that ./flash check compiles: the names alone.
// Files of kernels include it for one line that measures them against the library. A product says that it is not
// simulated, and returns CUBLAS_STATUS_NOT_SUPPORTED.
// Use: #include <cublas_v2.h>, as with nvcc.
#pragma once
#include <cuda_runtime.h>

using cublasHandle_t = struct flash_cublas*;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
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

namespace flash::cuda {
inline cublasStatus_t no_cublas(const char* function) {
  std::fprintf(stderr, "flash check: %s: cuBLAS is not simulated; call a kernel of your own\n", function);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
}  // namespace flash::cuda

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) {
  return CUBLAS_STATUS_SUCCESS;
}

// cublasLt.h uses it, too.
#define FLASH_NO_CUBLAS(function)             \
  template <class... Arguments>               \
  cublasStatus_t function(Arguments&&...) {   \
    return flash::cuda::no_cublas(#function); \
  }
FLASH_NO_CUBLAS(cublasSgemm)
FLASH_NO_CUBLAS(cublasDgemm)
FLASH_NO_CUBLAS(cublasHgemm)
FLASH_NO_CUBLAS(cublasSgemv)
FLASH_NO_CUBLAS(cublasDgemv)
FLASH_NO_CUBLAS(cublasSaxpy)
FLASH_NO_CUBLAS(cublasSdot)
FLASH_NO_CUBLAS(cublasGemmEx)
FLASH_NO_CUBLAS(cublasSgemmStridedBatched)
FLASH_NO_CUBLAS(cublasGemmStridedBatchedEx)
