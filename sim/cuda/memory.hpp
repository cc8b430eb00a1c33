// memory.hpp: CUDA's calls for memory: allocation, copies, sets, symbols, what a pointer is. A copy is done when its
// call returns; while its stream is captured, when the graph is launched.
// Use: through <cuda_runtime.h>. The bodies: sim/cuda/memory.cpp.
#pragma once
#include <cstddef>
#include <type_traits>

#include "sim/core/padding.hpp"
#include "sim/core/simt.hpp"
#include "sim/cuda/streams.hpp"

// NOLINTBEGIN: CUDA's names
namespace flash::cuda {
cudaError_t copy_symbol(void* variable, const void* host, void* into_host, std::size_t bytes, std::size_t offset,
                        simt::Site site);
cudaError_t symbol_address(void** pointer, const void* variable, simt::Site site);
cudaError_t symbol_size(std::size_t* bytes, const void* variable, simt::Site site);
}  // namespace flash::cuda
#include "sim/dialect/symbols.hpp"

constexpr unsigned cudaMemAttachGlobal = 1, cudaMemAttachHost = 2, cudaMemAttachSingle = 4, cudaHostAllocDefault = 0,
                   cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4,
                   cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2,
                   cudaHostRegisterIoMemory = 4, cudaHostRegisterReadOnly = 8;

// ---- allocation ---------------------------------------------------------------------------------------------------

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
#define cudaMallocAsync(pointer, bytes, ...) FLASH_ALLOCATE(pointer, bytes, device)
#define cudaMallocFromPoolAsync(pointer, bytes, pool, stream) FLASH_ALLOCATE(pointer, bytes, device)
#define cudaMallocManaged(pointer, bytes, ...) FLASH_ALLOCATE(pointer, bytes, managed)
#define cudaMallocHost(pointer, bytes, ...) FLASH_ALLOCATE(pointer, bytes, pinned)
#define cudaHostAlloc(pointer, bytes, flags) FLASH_ALLOCATE(pointer, bytes, pinned)
// Rows begin at multiples of 512 bytes.
#define cudaMallocPitch(pointer, pitch, width, height) \
  FLASH_ALLOCATE(pointer, (*(pitch) = ((width) + 511) / 512 * 512) * (height), device)

cudaError_t cudaFree(void* pointer, FLASH_SITE_OF_CALL);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream, FLASH_SITE_OF_CALL);
cudaError_t cudaFreeHost(void* pointer, FLASH_SITE_OF_CALL);

// Pools are handles alone: memory comes from the one device memory.
using cudaMemPool_t = struct CUmemPool_st*;
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid, cudaMemAllocationTypePinned };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone };
enum cudaMemLocationType {
  cudaMemLocationTypeInvalid,
  cudaMemLocationTypeDevice,
  cudaMemLocationTypeHost,
  cudaMemLocationTypeHostNuma,
  cudaMemLocationTypeHostNumaCurrent
};
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  cudaMemAllocationHandleType handleTypes;
  cudaMemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned char reserved[64];
};
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic,
  cudaMemPoolReuseAllowInternalDependencies,
  cudaMemPoolAttrReleaseThreshold,
  cudaMemPoolAttrReservedMemCurrent,
  cudaMemPoolAttrReservedMemHigh,
  cudaMemPoolAttrUsedMemCurrent,
  cudaMemPoolAttrUsedMemHigh
};
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool);
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes);

// ---- copies and sets ------------------------------------------------------------------------------------------------

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                           FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream = nullptr, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream = nullptr,
                              FLASH_SITE_OF_CALL);
cudaError_t cudaMemset(void* to, int value, std::size_t bytes, FLASH_SITE_OF_CALL);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream = nullptr, FLASH_SITE_OF_CALL);
cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                         FLASH_SITE_OF_CALL);
cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t stream = nullptr, FLASH_SITE_OF_CALL);

// In three dimensions: widths in bytes, `xsize` and `ysize` the width and height that were asked for.
struct cudaExtent {
  std::size_t width, height, depth;
};
struct cudaPos {
  std::size_t x, y, z;
};
struct cudaPitchedPtr {
  void* ptr;
  std::size_t pitch, xsize, ysize;
};
struct cudaMemcpy3DParms {
  struct cudaArray* srcArray;  // arrays of textures are not simulated: null
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  struct cudaArray* dstArray;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  cudaExtent extent;
  cudaMemcpyKind kind;
};
inline cudaExtent make_cudaExtent(std::size_t width, std::size_t height, std::size_t depth) {
  return {width, height, depth};
}
inline cudaPos make_cudaPos(std::size_t x, std::size_t y, std::size_t z) {
  return {x, y, z};
}
inline cudaPitchedPtr make_cudaPitchedPtr(void* pointer, std::size_t pitch, std::size_t xsize, std::size_t ysize) {
  return {pointer, pitch, xsize, ysize};
}
namespace flash::cuda {
cudaError_t allocate_3d(cudaPitchedPtr* pointer, cudaExtent extent, const char* name, simt::Site site);
}
#define cudaMalloc3D(pointer, extent) \
  ::flash::cuda::allocate_3d((pointer), (extent), #pointer, ::flash::simt::Site::current())
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters, FLASH_SITE_OF_CALL);
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, cudaStream_t stream = nullptr, FLASH_SITE_OF_CALL);
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent, FLASH_SITE_OF_CALL);
cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t stream = nullptr,
                              FLASH_SITE_OF_CALL);

// ---- the host's memory, advice, what a pointer is -------------------------------------------------------------------

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* pointer);
cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer);
cudaError_t cudaHostGetDevicePointer(void** pointer, void* host, unsigned flags, FLASH_SITE_OF_CALL);
template <class T>
cudaError_t cudaHostGetDevicePointer(T** pointer, void* host, unsigned flags, FLASH_SITE_OF_CALL) {
  void* found = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&found, host, flags, site);
  if (error == cudaSuccess) *pointer = static_cast<T*>(found);
  return error;
}
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly,
  cudaMemAdviseSetPreferredLocation,
  cudaMemAdviseUnsetPreferredLocation,
  cudaMemAdviseSetAccessedBy,
  cudaMemAdviseUnsetAccessedBy
};
// Of managed memory alone; before CUDA 13 with the number of a device.
cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location);
cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice, int device);
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream = nullptr);
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, int device, cudaStream_t stream = nullptr);
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* pointer, std::size_t bytes = 0,
                                     unsigned flags = cudaMemAttachSingle);
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer);

template <class S, class T>
cudaError_t cudaGetSymbolAddress(S** pointer, const T& symbol, FLASH_SITE_OF_CALL) {
  void* found = nullptr;
  const cudaError_t error = flash::cuda::symbol_address(&found, &symbol, site);
  if (error == cudaSuccess) *pointer = static_cast<S*>(found);
  return error;
}
template <class T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T& symbol, FLASH_SITE_OF_CALL) {
  return flash::cuda::symbol_size(bytes, &symbol, site);
}
// NOLINTEND
