// device.cpp: see device.hpp.
// Use: through <cuda_runtime.h>.
#include "sim/cuda/device.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "sim/core/device_memory.hpp"
#include "sim/cuda/calls.hpp"
#include "sim/cuda/program.hpp"
#include "sim/limits.hpp"

using flash::cuda::failed, flash::cuda::program;

namespace {

unsigned flags = cudaDeviceScheduleAuto;
cudaFuncCache cache = cudaFuncCachePreferNone;

// In the order of cudaLimit, as a GPU has them before anybody sets one; 0: this device has no such limit.
constexpr std::array<std::size_t, 7> kLimits{1024, 7 << 20, 8 << 20, 0, 2048, 64, 0};
std::array<std::size_t, 7> limits = kLimits;

bool has(cudaLimit limit) {
  return limit >= 0 && limit < static_cast<int>(limits.size()) && limit != cudaLimitDevRuntimeSyncDepth;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return failed(cudaErrorInvalidValue);
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (!device) return failed(cudaErrorInvalidValue);
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
  return wanted ? cudaGetDevice(device) : failed(cudaErrorInvalidValue);
}
cudaError_t cudaSetDeviceFlags(unsigned wanted) {
  if (wanted > 31) return failed(cudaErrorInvalidValue);
  flags = wanted;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned* now) {
  *now = flags;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  if (!p) return failed(cudaErrorInvalidValue);
  const flash::Profile profile = program().machine().options().profile;
  const bool hopper = profile == flash::Profile::sm_90;
  *p = {};
  std::snprintf(p->name, sizeof p->name, "FlashPhases simulator (%s)", hopper ? "sm_90" : "sm_80");
  // The simulator's own, or its limits.
  p->totalGlobalMem = flash::simt::DeviceMemory::kTotal;
  p->sharedMemPerBlock = flash::kSharedWithoutAsking;
  p->sharedMemPerBlockOptin = flash::shared_memory_limit(profile);
  p->reservedSharedMemPerBlock = flash::kReservedShared;
  p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin + p->reservedSharedMemPerBlock;
  p->totalConstMem = 65536;
  p->warpSize = 32, p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = hopper ? 9 : 8, p->minor = 0;
  p->concurrentKernels = p->deviceOverlap = p->unifiedAddressing = p->canMapHostMemory = 1;
  p->managedMemory = p->concurrentManagedAccess = p->cooperativeLaunch = p->memoryPoolsSupported = 1;
  p->streamPrioritiesSupported = p->hostRegisterSupported = 1;
  p->clusterLaunch = hopper;
  // The chip's.
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->multiProcessorCount = flash::multiprocessors(profile);
  p->maxThreadsPerMultiProcessor = flash::kThreadsOfMultiprocessor;
  p->maxBlocksPerMultiProcessor = flash::kBlocksOfMultiprocessor;
  p->l2CacheSize = (hopper ? 60 : 40) * 1024 * 1024, p->memoryBusWidth = hopper ? 6144 : 5120;
  p->clockRate = hopper ? 1980000 : 1410000, p->memoryClockRate = hopper ? 3201000 : 1215000;
  p->asyncEngineCount = 3, p->ECCEnabled = 1, p->singleToDoublePrecisionPerfRatio = 2;
  p->globalL1CacheSupported = p->localL1CacheSupported = p->computePreemptionSupported = 1;
  p->memPitch = 2147483647, p->textureAlignment = p->surfaceAlignment = 512, p->texturePitchAlignment = 32;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) return error;
  switch (value ? attribute : cudaDeviceAttr{}) {
#define FLASH_ATTRIBUTE(name, number, field) \
  case cudaDevAttr##name:                    \
    *value = static_cast<int>(p.field);      \
    return cudaSuccess;
    FLASH_CUDA_ATTRIBUTES(FLASH_ATTRIBUTE)
#undef FLASH_ATTRIBUTE
  }
  return failed(cudaErrorInvalidValue);
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  if (!id || length < 13) return failed(cudaErrorInvalidValue);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return flash::cuda::wait_for_all();
}
cudaError_t cudaDeviceReset() {
  flash::cuda::reset_streams();
  limits = kLimits, flags = cudaDeviceScheduleAuto;
  cache = cudaFuncCachePreferNone;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = flash::simt::DeviceMemory::kTotal;
  *free = *total - program().machine().used_memory();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return failed(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}

// They are kept and told; the simulator has limits of its own.
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
  if (!has(limit)) return failed(cudaErrorInvalidValue);
  limits[static_cast<std::size_t>(limit)] = value;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  if (!value) return failed(cudaErrorInvalidValue);
  if (!has(limit)) return failed(cudaErrorInvalidValue);
  *value = limits[static_cast<std::size_t>(limit)];
  return cudaSuccess;
}
// Caches are not simulated, and banks have four bytes.
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  cache = config;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  *config = cache;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  *config = cudaSharedMemBankSizeFourByte;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (device != 0 || peer != 0) return failed(cudaErrorInvalidDevice);
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return failed(peer == 0 ? cudaErrorPeerAccessUnsupported : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return failed(peer == 0 ? cudaErrorPeerAccessNotEnabled : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, int, int) {
  return failed(cudaErrorInvalidDevice);
}

// ---- occupancy ----------------------------------------------------------------------------------------------------

namespace flash::cuda {

cudaError_t blocks_of_multiprocessor(int* blocks, const void* kernel, int threads, std::size_t shared_bytes) {
  cudaFuncAttributes of_kernel;
  if (!blocks || threads < 1) return failed(cudaErrorInvalidValue);
  if (const cudaError_t error = get_attributes(&of_kernel, kernel); error != cudaSuccess) return error;
  *blocks = flash::blocks_of_multiprocessor(program().machine().options().profile, threads,
                                            shared_bytes + of_kernel.sharedSizeBytes);
  return cudaSuccess;
}

cudaError_t best_block(int* grid, int* block, const void* kernel, std::size_t (*bytes)(const void*, int),
                       const void* of, int limit) {
  if (!grid || !block) return failed(cudaErrorInvalidValue);
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  const int most = limit > 0 ? std::min(limit, p.maxThreadsPerBlock) : p.maxThreadsPerBlock;
  int best = 0;  // threads of a multiprocessor
  *grid = *block = 0;
  for (int threads = (most + p.warpSize - 1) / p.warpSize * p.warpSize; threads > 0; threads -= p.warpSize) {
    const int size = std::min(threads, most);
    int blocks = 0;
    const cudaError_t error = blocks_of_multiprocessor(&blocks, kernel, size, bytes(of, size));
    if (error != cudaSuccess) return error;
    if (blocks * size > best) best = blocks * size, *block = size, *grid = blocks * p.multiProcessorCount;
  }
  return cudaSuccess;
}

}  // namespace flash::cuda
