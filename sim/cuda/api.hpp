// api.hpp: CUDA's host interface as programs use it: errors, the device, streams and graphs, memory, and here the
// attributes of kernels. One device, whose memory is the simulator's; work is done when a call returns.
// Use: through <cuda_runtime.h>; what each function does here: docs/check.md. The bodies: the .cpp files beside it.
#pragma once
#include "sim/cuda/device.hpp"
#include "sim/cuda/errors.hpp"
#include "sim/cuda/memory.hpp"
#include "sim/cuda/streams.hpp"

// NOLINTBEGIN: CUDA's names
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeClusterDimMustBeSet = 10,
  cudaFuncAttributeRequiredClusterWidth = 11,
  cudaFuncAttributeRequiredClusterHeight = 12,
  cudaFuncAttributeRequiredClusterDepth = 13,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
  cudaFuncAttributeClusterSchedulingPolicyPreference = 15
};
enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1,
  cudaSharedmemCarveoutMaxL1 = 0,
  cudaSharedmemCarveoutMaxShared = 100
};
// Of registers, local memory and constants the simulator knows nothing: 0.
struct cudaFuncAttributes {
  std::size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
  int preferredShmemCarveout, clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
  int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
};

namespace flash::cuda {
// Runs a launch; what CUDA refuses becomes cudaGetLastError's, and a line on stderr says why.
cudaError_t launch(simt::Launch& launch, cudaStream_t stream, simt::Site site);
cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value, simt::Site site);
cudaError_t get_attributes(cudaFuncAttributes* attributes, const void* kernel);
// Occupancy; `bytes(of, threads)` says how much dynamic shared memory a block of so many threads has.
cudaError_t blocks_of_multiprocessor(int* blocks, const void* kernel, int threads, std::size_t shared_bytes);
cudaError_t best_block(int* grid, int* block, const void* kernel, std::size_t (*bytes)(const void* of, int threads),
                       const void* of, int limit);
}  // namespace flash::cuda
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value, FLASH_SITE_OF_CALL) {
  return flash::cuda::set_attribute(reinterpret_cast<const void*>(kernel), attribute, value, site);
}
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
  return flash::cuda::get_attributes(attributes, reinterpret_cast<const void*>(kernel));
}
// Caches are not simulated, and banks have four bytes.
template <class Kernel>
cudaError_t cudaFuncSetCacheConfig(Kernel*, cudaFuncCache) {
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaFuncSetSharedMemConfig(Kernel*, cudaSharedMemConfig) {
  return cudaSuccess;
}
// NOLINTEND
