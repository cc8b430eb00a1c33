// api.cpp: errors, launches and the attributes of kernels, on one simulated device.
// What CUDA answers with an error code is answered so here. Calls that are defects (a launch that no GPU takes) count
// as findings, too, since many programs ignore the code and go on with wrong data.
// Use: through <cuda_runtime.h>. Options and the report's place come from the environment (program.hpp).
#include "sim/cuda/api.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "sim/core/block.hpp"
#include "sim/core/code_names.hpp"
#include "sim/core/variables.hpp"
#include "sim/cuda/calls.hpp"
#include "sim/cuda/program.hpp"
#include "sim/error.hpp"
#include "sim/limits.hpp"

namespace flash::cuda {
namespace {

cudaError_t last_error = cudaSuccess;
std::map<const void*, int> dynamic_shared, carveout;  // what cudaFuncSetAttribute set, by kernel

cudaError_t run(simt::Launch launch, simt::Site site) {
  try {
    program().run(launch);
    return cudaSuccess;
  } catch (const std::exception& error) {
    return defect((std::string("the launch of ") + launch.kernel_name).c_str(), site, error.what(),
                  cudaErrorInvalidConfiguration);
  }
}

// The bits of a launch's arguments, which outlive it in a graph, as on a GPU.
std::shared_ptr<std::byte> kept(const simt::Launch& launch) {
  constexpr std::align_val_t kAlignment{256};
  std::shared_ptr<std::byte> bits(static_cast<std::byte*>(::operator new(launch.argument_bytes, kAlignment)),
                                  [](std::byte* begin) { ::operator delete(begin, kAlignment); });
  std::memcpy(bits.get(), launch.arguments, launch.argument_bytes);
  return bits;
}

}  // namespace

cudaError_t failed(cudaError_t error) {
  return last_error = error;
}

cudaError_t defect(const char* call, simt::Site site, const std::string& what, cudaError_t error) {
  program().add_finding({"call", std::string("call: ") + call + ": " + what + "\n  calls  " + simt::site_of(site)});
  return failed(error);
}

cudaError_t launch(simt::Launch& launch, cudaStream_t stream, simt::Site site) {
  if (simt::active_worker) {
    simt::active_worker = nullptr;
    throw Error("a kernel launches another: dynamic parallelism is not simulated");
  }
  const std::string call = std::string("the launch of ") + launch.kernel_name;
  if (!is_captured(stream))
    return in_stream(
        stream, call.c_str(), site, [&] { return run(launch, site); }, In::launches);
  return in_stream(stream, call.c_str(), site, [launch, site, bits = kept(launch)]() mutable {
    launch.arguments = bits.get();
    return run(launch, site);
  });
}

cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value, simt::Site site) {
  switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      try {
        program().machine().allow_shared_memory(kernel, value);
        dynamic_shared[kernel] = value;
        return cudaSuccess;
      } catch (const Error& error) {
        return defect("cudaFuncSetAttribute", site, error.what(), cudaErrorInvalidValue);
      }
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      if (value < cudaSharedmemCarveoutDefault || value > cudaSharedmemCarveoutMaxShared)
        return failed(cudaErrorInvalidValue);
      carveout[kernel] = value;  // a hint
      return cudaSuccess;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
    case cudaFuncAttributeClusterSchedulingPolicyPreference:
      return cudaSuccess;
    default:
      return failed(cudaErrorInvalidValue);
  }
}

cudaError_t get_attributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (!attributes) return failed(cudaErrorInvalidValue);
  if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
  const auto of = [kernel](const std::map<const void*, int>& values, int otherwise) {
    const auto found = values.find(kernel);
    return found == values.end() ? otherwise : found->second;
  };
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  simt::Launch launch{};
  launch.kernel = kernel;
  *attributes = {};
  attributes->sharedSizeBytes = simt::SharedLayout(launch).static_bytes();
  attributes->maxThreadsPerBlock = p.maxThreadsPerBlock;
  attributes->ptxVersion = attributes->binaryVersion = 10 * p.major + p.minor;
  const int left = static_cast<int>(kSharedWithoutAsking) - static_cast<int>(attributes->sharedSizeBytes);
  attributes->maxDynamicSharedSizeBytes = of(dynamic_shared, left);
  attributes->preferredShmemCarveout = of(carveout, cudaSharedmemCarveoutDefault);
  return cudaSuccess;
}

}  // namespace flash::cuda

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define FLASH_ERROR(name, number, text) \
  case name:                            \
    return #name;
    FLASH_CUDA_ERRORS(FLASH_ERROR)
#undef FLASH_ERROR
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define FLASH_ERROR(name, number, text) \
  case name:                            \
    return text;
    FLASH_CUDA_ERRORS(FLASH_ERROR)
#undef FLASH_ERROR
  }
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() {
  return std::exchange(flash::cuda::last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return flash::cuda::last_error;
}
