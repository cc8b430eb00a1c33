// tensor_maps.cpp: the driver's cuTensorMapEncodeTiled. A map of bytes is one of 16-bit elements, half as many, and
// marked, so that copies halve the coordinate x. Use: see tensor_maps.hpp.
#include "sim/cuda/tensor_maps.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "sim/cuda/calls.hpp"
#include "sim/cuda/program.hpp"
#include "sim/error.hpp"

namespace {

CUresult refused(const std::string& what) {
  flash::cuda::program().add_finding({"call", "call: cuTensorMapEncodeTiled: " + what});
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  if (!map || !sizes || !box || rank < 2 || rank > flash::simt::kMostDimensions || !strides)
    return CUDA_ERROR_INVALID_VALUE;
  const bool bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8;
  if (!bytes && type != CU_TENSOR_MAP_DATA_TYPE_UINT16 && type != CU_TENSOR_MAP_DATA_TYPE_FLOAT16 &&
      type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
    return refused("tensor maps of this type are not simulated; take 16-bit floats or bytes");
  if (swizzle != CU_TENSOR_MAP_SWIZZLE_128B)
    return refused("this swizzle is not simulated; take CU_TENSOR_MAP_SWIZZLE_128B");
  if (element_strides && std::any_of(element_strides, element_strides + rank, [](cuuint32_t s) { return s != 1; }))
    return refused("strides between elements are not simulated; take 1");
  if (bytes && (sizes[0] % 2 != 0 || box[0] % 2 != 0))
    return refused("rows of an odd number of bytes are not simulated; take an even one");
  std::uint64_t extents[flash::simt::kMostDimensions];
  std::uint32_t boxes[flash::simt::kMostDimensions];
  std::copy_n(sizes, rank, extents), std::copy_n(box, rank, boxes);
  if (bytes) extents[0] /= 2, boxes[0] /= 2;
  try {
    static_cast<flash::simt::TensorMap&>(*map) = flash::simt::make_tensor_map(data, rank, extents, strides, boxes);
  } catch (const flash::Error& error) {
    refused(error.what());
    return CUDA_ERROR_INVALID_VALUE;
  }
  map->reserved[0] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS               ? "no error"
          : error == CUDA_ERROR_NOT_SUPPORTED ? "operation not supported"
                                              : "invalid argument";
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  if (found) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return known ? cudaSuccess : flash::cuda::failed(cudaErrorInvalidValue);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPoint(symbol, function, flags, found);
}
