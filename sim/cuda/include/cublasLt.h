// cublasLt.h: in place of cuBLASLt's header of this name, for programs that ./flash check compiles: the names alone;
// a call says that it is not simulated, and returns CUBLAS_STATUS_NOT_SUPPORTED.
// Use: #include <cublasLt.h>, as with nvcc.
#pragma once
#include <cublas_v2.h>

using cublasLtHandle_t = struct flash_cublas_lt*;
using cublasLtMatmulDesc_t = struct flash_cublas_lt*;
using cublasLtMatrixLayout_t = struct flash_cublas_lt*;
using cublasLtMatmulPreference_t = struct flash_cublas_lt*;
struct cublasLtMatmulAlgo_t {};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
};
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU = 32,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36
};
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
};
enum cublasLtMatmulPreferenceAttributes_t { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1 };

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}

FLASH_NO_CUBLAS(cublasLtMatmul)
FLASH_NO_CUBLAS(cublasLtMatmulAlgoGetHeuristic)
FLASH_NO_CUBLAS(cublasLtMatmulDescCreate)
FLASH_NO_CUBLAS(cublasLtMatmulDescDestroy)
FLASH_NO_CUBLAS(cublasLtMatmulDescSetAttribute)
FLASH_NO_CUBLAS(cublasLtMatmulPreferenceCreate)
FLASH_NO_CUBLAS(cublasLtMatmulPreferenceDestroy)
FLASH_NO_CUBLAS(cublasLtMatmulPreferenceSetAttribute)
FLASH_NO_CUBLAS(cublasLtMatrixLayoutCreate)
FLASH_NO_CUBLAS(cublasLtMatrixLayoutDestroy)
