// launch_api.hpp: launches by function call (cudaLaunchKernel, cudaLaunchCooperativeKernel, cudaLaunchKernelEx) and
// occupancy.
// The kernel's parameter types say what the array of pointers points to.
// Use: through <cuda_runtime.h>.
#pragma once
#include <utility>

#include "sim/cuda/api.hpp"
#include "sim/dialect/dialect.hpp"
#include "sim/dialect/launch.hpp"

namespace flash::inline FLASH_MACHINE {
template <class... Parameters, std::size_t... kIndices>
void launch_unpacked(const Launching& launching, void (*kernel)(Parameters...), void** arguments,
                     std::index_sequence<kIndices...>) {
  launching.run(reinterpret_cast<const void*>(kernel), kernel, *static_cast<Parameters*>(arguments[kIndices])...);
}
}  // namespace flash::inline FLASH_MACHINE

template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes = 0, cudaStream_t stream = nullptr, FLASH_SITE_OF_CALL) {
  flash::launch_unpacked({{site, stream}, "cudaLaunchKernel", grid, block, shared_bytes}, kernel, arguments,
                         std::index_sequence_for<Parameters...>());
  return cudaPeekAtLastError();
}
template <class... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes = 0, cudaStream_t stream = nullptr,
                                        FLASH_SITE_OF_CALL) {
  flash::launch_unpacked({{site, stream, true}, "cudaLaunchCooperativeKernel", grid, block, shared_bytes}, kernel,
                         arguments, std::index_sequence_for<Parameters...>());
  return cudaPeekAtLastError();
}
// With attributes, of which two have a meaning here: the shape of clusters, and a cooperative launch.
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeAccessPolicyWindow = 1,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeSynchronizationPolicy = 3,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeClusterSchedulingPolicyPreference = 5,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8
};
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed, priority;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
namespace flash::cuda {
template <class... Parameters, class... Arguments>
cudaError_t launch_kernel_ex(simt::Site site, const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                             Arguments&&... arguments) {
  Target target{site, config->stream};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    const auto& cluster = attribute.val.clusterDim;
    if (attribute.id == cudaLaunchAttributeClusterDimension) target.cluster = dim3(cluster.x, cluster.y, cluster.z);
    if (attribute.id == cudaLaunchAttributeCooperative) target.cooperative = attribute.val.cooperative != 0;
  }
  const Launching launching{target, "cudaLaunchKernelEx", config->gridDim, config->blockDim, config->dynamicSmemBytes};
  launching.run(reinterpret_cast<const void*>(kernel), kernel, static_cast<Parameters>(arguments)...);
  return cudaPeekAtLastError();
}
}  // namespace flash::cuda
// A macro, so that what is refused names the line of the program.
#define cudaLaunchKernelEx(...) ::flash::cuda::launch_kernel_ex(::flash::simt::Site::current(), __VA_ARGS__)
// A (void*) in front of the kernel's name: nvcc takes it, but the types are lost.
#define FLASH_NO_TYPES [[gnu::error("write the kernel's name without (void*): its parameters' types are needed here")]]
FLASH_NO_TYPES cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, std::size_t = 0,
                                            cudaStream_t = nullptr);
FLASH_NO_TYPES cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, std::size_t = 0,
                                                       cudaStream_t = nullptr);

// ---- occupancy: as threads and shared memory allow; the simulator knows no registers --------------------------------

constexpr unsigned cudaOccupancyDefault = 0, cudaOccupancyDisableCachingOverride = 1;
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int threads,
                                                          std::size_t shared_bytes) {
  return flash::cuda::blocks_of_multiprocessor(blocks, reinterpret_cast<const void*>(kernel), threads, shared_bytes);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Kernel* kernel, int threads,
                                                                   std::size_t shared_bytes, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared_bytes);
}
template <class Bytes, class Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, Kernel* kernel, Bytes bytes,
                                                           int limit = 0) {
  const auto call = [](const void* of, int threads) {
    return static_cast<std::size_t>((*static_cast<const Bytes*>(of))(threads));
  };
  return flash::cuda::best_block(grid, block, reinterpret_cast<const void*>(kernel), call, &bytes, limit);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel* kernel, std::size_t shared_bytes = 0,
                                               int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(grid, block, kernel, [=](int) { return shared_bytes; }, limit);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, Kernel* kernel,
                                                        std::size_t shared_bytes = 0, int limit = 0, unsigned = 0) {
  return cudaOccupancyMaxPotentialBlockSize(grid, block, kernel, shared_bytes, limit);
}
