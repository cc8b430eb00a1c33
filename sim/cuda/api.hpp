// api.hpp: CUDA's host interface as far as small programs use it: memory, errors, events, streams, properties, symbols.
// One device, whose memory is the simulator's; work is done when a call returns, so streams and events are in order.
// Use: through <cuda_runtime.h>; what each function does here: docs/check.md. The bodies: sim/cuda/api.cpp.
#pragma once
#include <cstddef>
#include <type_traits>

#include "sim/core/padding.hpp"
#include "sim/core/simt.hpp"

#define FLASH_SITE_OF_CALL flash::simt::Site site = flash::simt::Site::current()

// NOLINTBEGIN: CUDA's names
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidDevicePointer = 17,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorAssert = 710,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999
};
using cudaError = cudaError_t;
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

// ---- the device ---------------------------------------------------------------------------------------------------

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor, totalConstMem;
  int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor;
  int l2CacheSize, memoryBusWidth, clockRate, memoryClockRate, concurrentKernels, asyncEngineCount, cooperativeLaunch;
  int managedMemory, concurrentManagedAccess, unifiedAddressing, canMapHostMemory, integrated;
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrConcurrentManagedAccess = 89,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
constexpr unsigned cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2,
                   cudaDeviceScheduleBlockingSync = 4, cudaDeviceMapHost = 8;
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);

// ---- streams and events: everything is done in the order of the program -------------------------------------------

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
// The simulator's time, which says nothing of a GPU's.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

// ---- memory -------------------------------------------------------------------------------------------------------

namespace flash::cuda {
cudaError_t copy_symbol(void* variable, const void* host, void* into_host, std::size_t bytes, std::size_t offset,
                        simt::Site site);
cudaError_t symbol_address(void** pointer, const void* variable, simt::Site site);
}  // namespace flash::cuda
#include "sim/dialect/symbols.hpp"

constexpr unsigned cudaMemAttachGlobal = 1, cudaHostAllocDefault = 0, cudaHostAllocPortable = 1,
                   cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4;

namespace flash::cuda {
enum class Memory { device, managed, pinned };
cudaError_t allocate(void** pointer, std::size_t bytes, std::size_t element_bytes, simt::Padding padding,
                     const char* name, Memory memory, simt::Site site);
template <class T>
cudaError_t allocate(T** pointer, std::size_t bytes, const char* name, Memory memory, simt::Site site) {
  std::size_t element = 0;  // not known
  simt::Padding padding = nullptr;
  if constexpr (!std::is_void_v<T>) element = sizeof(T), padding = simt::padding_of<T>();
  void* memory_begin = nullptr;
  const cudaError_t error = allocate(&memory_begin, bytes, element, padding, name, memory, site);
  if (error == cudaSuccess) *pointer = static_cast<T*>(memory_begin);
  return error;
}
}  // namespace flash::cuda

// Macros, so that arrays get the names that the program gives them: cudaMalloc(&d_x, n) makes the array d_x.
#define FLASH_ALLOCATE(pointer, bytes, memory) \
  ::flash::cuda::allocate((pointer), (bytes), #pointer, ::flash::cuda::Memory::memory, ::flash::simt::Site::current())
#define cudaMalloc(pointer, bytes) FLASH_ALLOCATE(pointer, bytes, device)
#define cudaMallocAsync(pointer, bytes, stream) FLASH_ALLOCATE(pointer, bytes, device)
#define cudaMallocManaged(pointer, bytes, ...) FLASH_ALLOCATE(pointer, bytes, managed)
#define cudaMallocHost(pointer, bytes) FLASH_ALLOCATE(pointer, bytes, pinned)
#define cudaHostAlloc(pointer, bytes, flags) FLASH_ALLOCATE(pointer, bytes, pinned)
// Rows begin at multiples of 512 bytes.
#define cudaMallocPitch(pointer, pitch, width, height) \
  FLASH_ALLOCATE(pointer, (*(pitch) = ((width) + 511) / 512 * 512) * (height), device)

cudaError_t cudaFree(void* pointer, FLASH_SITE_OF_CALL);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream, FLASH_SITE_OF_CALL);
cudaError_t cudaFreeHost(void* pointer, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream = nullptr,
                              FLASH_SITE_OF_CALL);
cudaError_t cudaHostGetDevicePointer(void** pointer, void* host, unsigned flags);
template <class T>
cudaError_t cudaHostGetDevicePointer(T** pointer, void* host, unsigned flags) {
  void* found = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&found, host, flags);
  if (error == cudaSuccess) *pointer = static_cast<T*>(found);
  return error;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes, FLASH_SITE_OF_CALL);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream = nullptr, FLASH_SITE_OF_CALL);
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, int device, cudaStream_t stream = nullptr);
template <class T>
cudaError_t cudaGetSymbolAddress(void** pointer, const T& symbol, FLASH_SITE_OF_CALL) {
  return flash::cuda::symbol_address(pointer, &symbol, site);
}

// ---- kernels ------------------------------------------------------------------------------------------------------

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaFuncCache {
  cudaFuncCachePreferNone,
  cudaFuncCachePreferShared,
  cudaFuncCachePreferL1,
  cudaFuncCachePreferEqual
};

namespace flash::cuda {
// Runs a launch; what CUDA refuses becomes cudaGetLastError's, and a line on stderr says why.
cudaError_t launch(simt::Launch& launch, simt::Site site);
cudaError_t allow_shared_memory(const void* kernel, cudaFuncAttribute attribute, int bytes, simt::Site site);
}  // namespace flash::cuda
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value,
                                 FLASH_SITE_OF_CALL) {
  return flash::cuda::allow_shared_memory(reinterpret_cast<const void*>(kernel), attribute, value, site);
}
template <class... Parameters>
cudaError_t cudaFuncSetCacheConfig(void (*)(Parameters...), cudaFuncCache) {
  return cudaSuccess;
}
// NOLINTEND
