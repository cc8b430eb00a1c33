// device.hpp: what CUDA's host interface tells of the one device: properties, attributes, limits, versions, peers.
// Limits are those of the profile; what only a chip has (clocks, caches) is an H200's or an A100's; what the simulator
// does not have (textures, the PCI bus) is 0.
// Use: through <cuda_runtime.h>. The bodies: sim/cuda/device.cpp.
#pragma once
#include <cstddef>

#include "sim/cuda/errors.hpp"

// NOLINTBEGIN: CUDA's names
#define CUDART_VERSION 13000
#define CUDA_VERSION CUDART_VERSION

struct cudaUUID_t {
  char bytes[16];
};
enum cudaComputeMode {
  cudaComputeModeDefault,
  cudaComputeModeExclusive,
  cudaComputeModeProhibited,
  cudaComputeModeExclusiveProcess
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  std::size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  std::size_t totalConstMem;
  int major, minor;
  std::size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
  int maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2], maxTexture2DMipmap[2];
  int maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap;
  int maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2];
  int maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3];
  int maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
  std::size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount;
  int unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  std::size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  int singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported;
  int canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
  std::size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  std::size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
  int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
};
// Attributes whose value is a field of the properties: CUDA's name, its number, the field.
#define FLASH_CUDA_ATTRIBUTES(X)                                                            \
  X(MaxThreadsPerBlock, 1, maxThreadsPerBlock)                                              \
  X(MaxBlockDimX, 2, maxThreadsDim[0])                                                      \
  X(MaxBlockDimY, 3, maxThreadsDim[1])                                                      \
  X(MaxBlockDimZ, 4, maxThreadsDim[2])                                                      \
  X(MaxGridDimX, 5, maxGridSize[0])                                                         \
  X(MaxGridDimY, 6, maxGridSize[1])                                                         \
  X(MaxGridDimZ, 7, maxGridSize[2])                                                         \
  X(MaxSharedMemoryPerBlock, 8, sharedMemPerBlock)                                          \
  X(TotalConstantMemory, 9, totalConstMem)                                                  \
  X(WarpSize, 10, warpSize)                                                                 \
  X(MaxPitch, 11, memPitch)                                                                 \
  X(MaxRegistersPerBlock, 12, regsPerBlock)                                                 \
  X(ClockRate, 13, clockRate)                                                               \
  X(TextureAlignment, 14, textureAlignment)                                                 \
  X(GpuOverlap, 15, deviceOverlap)                                                          \
  X(MultiProcessorCount, 16, multiProcessorCount)                                           \
  X(KernelExecTimeout, 17, kernelExecTimeoutEnabled)                                        \
  X(Integrated, 18, integrated)                                                             \
  X(CanMapHostMemory, 19, canMapHostMemory)                                                 \
  X(ComputeMode, 20, computeMode)                                                           \
  X(SurfaceAlignment, 30, surfaceAlignment)                                                 \
  X(ConcurrentKernels, 31, concurrentKernels)                                               \
  X(EccEnabled, 32, ECCEnabled)                                                             \
  X(PciBusId, 33, pciBusID)                                                                 \
  X(PciDeviceId, 34, pciDeviceID)                                                           \
  X(TccDriver, 35, tccDriver)                                                               \
  X(MemoryClockRate, 36, memoryClockRate)                                                   \
  X(GlobalMemoryBusWidth, 37, memoryBusWidth)                                               \
  X(L2CacheSize, 38, l2CacheSize)                                                           \
  X(MaxThreadsPerMultiProcessor, 39, maxThreadsPerMultiProcessor)                           \
  X(AsyncEngineCount, 40, asyncEngineCount)                                                 \
  X(UnifiedAddressing, 41, unifiedAddressing)                                               \
  X(PciDomainId, 50, pciDomainID)                                                           \
  X(TexturePitchAlignment, 51, texturePitchAlignment)                                       \
  X(ComputeCapabilityMajor, 75, major)                                                      \
  X(ComputeCapabilityMinor, 76, minor)                                                      \
  X(StreamPrioritiesSupported, 78, streamPrioritiesSupported)                               \
  X(GlobalL1CacheSupported, 79, globalL1CacheSupported)                                     \
  X(LocalL1CacheSupported, 80, localL1CacheSupported)                                       \
  X(MaxSharedMemoryPerMultiprocessor, 81, sharedMemPerMultiprocessor)                       \
  X(MaxRegistersPerMultiprocessor, 82, regsPerMultiprocessor)                               \
  X(ManagedMemory, 83, managedMemory)                                                       \
  X(IsMultiGpuBoard, 84, isMultiGpuBoard)                                                   \
  X(MultiGpuBoardGroupID, 85, multiGpuBoardGroupID)                                         \
  X(HostNativeAtomicSupported, 86, hostNativeAtomicSupported)                               \
  X(SingleToDoublePrecisionPerfRatio, 87, singleToDoublePrecisionPerfRatio)                 \
  X(PageableMemoryAccess, 88, pageableMemoryAccess)                                         \
  X(ConcurrentManagedAccess, 89, concurrentManagedAccess)                                   \
  X(ComputePreemptionSupported, 90, computePreemptionSupported)                             \
  X(CanUseHostPointerForRegisteredMem, 91, canUseHostPointerForRegisteredMem)               \
  X(CooperativeLaunch, 95, cooperativeLaunch)                                               \
  X(CooperativeMultiDeviceLaunch, 96, cooperativeMultiDeviceLaunch)                         \
  X(MaxSharedMemoryPerBlockOptin, 97, sharedMemPerBlockOptin)                               \
  X(HostRegisterSupported, 99, hostRegisterSupported)                                       \
  X(PageableMemoryAccessUsesHostPageTables, 100, pageableMemoryAccessUsesHostPageTables)    \
  X(DirectManagedMemAccessFromHost, 101, directManagedMemAccessFromHost)                    \
  X(MaxBlocksPerMultiprocessor, 106, maxBlocksPerMultiProcessor)                            \
  X(MaxPersistingL2CacheSize, 108, persistingL2CacheMaxSize)                                \
  X(MaxAccessPolicyWindowSize, 109, accessPolicyMaxWindowSize)                              \
  X(ReservedSharedMemoryPerBlock, 111, reservedSharedMemPerBlock)                           \
  X(SparseCudaArraySupported, 112, sparseCudaArraySupported)                                \
  X(HostRegisterReadOnlySupported, 113, hostRegisterReadOnlySupported)                      \
  X(MemoryPoolsSupported, 115, memoryPoolsSupported)                                        \
  X(ClusterLaunch, 120, clusterLaunch)
enum cudaDeviceAttr {
#define FLASH_ATTRIBUTE(name, number, field) cudaDevAttr##name = number,
  FLASH_CUDA_ATTRIBUTES(FLASH_ATTRIBUTE)
#undef FLASH_ATTRIBUTE
};
enum cudaLimit {
  cudaLimitStackSize,
  cudaLimitPrintfFifoSize,
  cudaLimitMallocHeapSize,
  cudaLimitDevRuntimeSyncDepth,
  cudaLimitDevRuntimePendingLaunchCount,
  cudaLimitMaxL2FetchGranularity,
  cudaLimitPersistingL2CacheSize
};
enum cudaFuncCache {
  cudaFuncCachePreferNone,
  cudaFuncCachePreferShared,
  cudaFuncCachePreferL1,
  cudaFuncCachePreferEqual
};
enum cudaSharedMemConfig {
  cudaSharedMemBankSizeDefault,
  cudaSharedMemBankSizeFourByte,
  cudaSharedMemBankSizeEightByte
};
enum cudaDeviceP2PAttr {
  cudaDevP2PAttrPerformanceRank = 1,
  cudaDevP2PAttrAccessSupported,
  cudaDevP2PAttrNativeAtomicSupported
};
constexpr unsigned cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2,
                   cudaDeviceScheduleBlockingSync = 4, cudaDeviceBlockingSync = 4, cudaDeviceMapHost = 8,
                   cudaDeviceLmemResizeToMax = 16;
constexpr int cudaCpuDeviceId = -1, cudaInvalidDeviceId = -2;

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaGetDeviceFlags(unsigned* flags);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value);
cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit);
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config);
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config);
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig config);
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config);
// There is one device: no peers.
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device, int peer);
// NOLINTEND
