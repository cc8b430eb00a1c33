// memory.cpp: see memory.hpp. What CUDA answers with an error code is answered so here; a call that is a defect (a copy
// past an array's end) counts as a finding, too, since many programs ignore the code and go on with wrong data.
// Use: through <cuda_runtime.h>.
#include "sim/cuda/memory.hpp"

#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "sim/core/device_memory.hpp"
#include "sim/core/variables.hpp"
#include "sim/cuda/calls.hpp"
#include "sim/cuda/program.hpp"
#include "sim/error.hpp"

struct CUmemPool_st {
  std::map<cudaMemPoolAttr, std::uint64_t> values{};
};

namespace flash::cuda {
namespace {

std::set<const void*> pinned;                        // by cudaMallocHost, what is not freed yet
std::map<const std::byte*, std::size_t> registered;  // host memory, and its bytes
CUmemPool_st default_pool;
cudaMemPool_t current_pool = &default_pool;
std::set<cudaMemPool_t> pools{&default_pool};

// "&d_x", "(void**)&d_x", "reinterpret_cast<void**>(&s.x)": the variable's name.
std::string variable_name(std::string text) {
  if (const std::size_t at = text.rfind('&'); at != std::string::npos) text.erase(0, at + 1);
  while (!text.empty() && std::strchr("() ", text.back())) text.pop_back();
  while (!text.empty() && std::strchr("( ", text.front())) text.erase(0, 1);
  return text.empty() ? "array" : text;
}

const std::byte* registered_at(const void* pointer) {
  const auto* at = static_cast<const std::byte*>(pointer);
  auto next = registered.upper_bound(at);
  if (next == registered.begin()) return nullptr;
  --next;
  return at < next->first + next->second ? next->first : nullptr;
}

bool pinned_at(const void* pointer) {
  const simt::DeviceArray* array = program().machine().array_at(pointer);
  return array && pinned.contains(array->begin);
}

// One side of a copy: "" when these bytes are the host's or lie in one array, else what is wrong.
std::string beyond(const void* begin, std::size_t bytes) {
  const simt::DeviceArray* array = program().machine().array_at(begin);
  if (!array) return "";
  const auto offset = static_cast<const std::byte*>(begin) - array->begin;
  if (!array->live) return array->name + " was freed";
  if (offset >= 0 && offset + bytes <= array->bytes) return "";
  return array->name + " has " + std::to_string(array->bytes) + " bytes; the copy reaches byte " +
         std::to_string(offset + static_cast<std::ptrdiff_t>(bytes));
}

// Where a copy begins, on both sides: rows of `width` bytes, `height` of them in a slice, `depth` slices.
struct Block {
  std::byte* to;
  std::size_t to_pitch, to_slice;
  const std::byte* from;
  std::size_t from_pitch, from_slice;
  std::size_t width, height, depth;
};

// Whether the copy may be made at all.
cudaError_t judge(const char* call, const Block& b, cudaMemcpyKind kind, simt::Site site) {
  const simt::MachineCore& machine = program().machine();
  const bool into_device = machine.array_at(b.to), from_device = machine.array_at(b.from);
  static constexpr const char* kKinds[] = {"cudaMemcpyHostToHost", "cudaMemcpyHostToDevice", "cudaMemcpyDeviceToHost",
                                           "cudaMemcpyDeviceToDevice", "cudaMemcpyDefault"};
  const bool wants_into = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind < 0 || kind > cudaMemcpyDefault)
    return defect(call, site, "the kind is no cudaMemcpyKind", cudaErrorInvalidMemcpyDirection);
  if (kind != cudaMemcpyDefault && ((wants_into && !into_device) || (wants_from && !from_device)))
    return defect(call, site,
                  std::string(kKinds[kind]) + ", but the " + (wants_into && !into_device ? "destination" : "source") +
                      " is memory of the host",
                  cudaErrorInvalidValue);
  if (b.width > b.to_pitch || b.width > b.from_pitch)
    return defect(call, site, "a row is wider than its pitch", cudaErrorInvalidPitchValue);
  const auto extent = [&](std::size_t pitch, std::size_t slice) {
    return (b.depth - 1) * slice + (b.height - 1) * pitch + b.width;
  };
  for (const std::string& wrong :
       {beyond(b.to, extent(b.to_pitch, b.to_slice)), beyond(b.from, extent(b.from_pitch, b.from_slice))})
    if (!wrong.empty()) return defect(call, site, wrong, cudaErrorInvalidValue);
  return cudaSuccess;
}

void move(const Block& b) {
  simt::MachineCore& machine = program().machine();
  const bool into_device = machine.array_at(b.to);
  for (std::size_t z = 0; z < b.depth; ++z)
    for (std::size_t y = 0; y < b.height; ++y) {
      std::byte* const to = b.to + z * b.to_slice + y * b.to_pitch;
      const std::byte* const from = b.from + z * b.from_slice + y * b.from_pitch;
      if (into_device)
        machine.copy_in(to, from, b.width);
      else
        std::memcpy(to, from, b.width);
    }
}

// Where a copy is made, and whether the call is one of the Async forms.
struct Where {
  cudaStream_t stream = nullptr;
  bool asynchronous = false;
};

cudaError_t copy(const char* call, const Block& block, cudaMemcpyKind kind, Where where, simt::Site site) {
  if (block.width == 0 || block.height == 0 || block.depth == 0) return cudaSuccess;
  if (const cudaError_t error = judge(call, block, kind, site); error != cudaSuccess) return error;
  // The host waits for copies from and to its own memory; of the Async forms for those to memory that is not pinned.
  const simt::MachineCore& machine = program().machine();
  const bool from_host = !machine.array_at(block.from), to_host = !machine.array_at(block.to);
  const bool to_pinned = pinned_at(block.to) || registered_at(block.to);
  const bool waits = where.asynchronous ? to_host && !to_pinned : from_host || to_host || to_pinned;
  const auto work = [=] { return move(block), cudaSuccess; };
  return in_stream(where.stream, call, site, work, waits ? In::waits : In::works);
}

cudaError_t copy(const char* call, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Where where,
                 simt::Site site) {
  const Block block{
      static_cast<std::byte*>(to), bytes, bytes, static_cast<const std::byte*>(from), bytes, bytes, bytes, 1, 1};
  return copy(call, block, kind, where, site);
}

cudaError_t copy_2d(const char* call, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                    std::size_t width, std::size_t height, cudaMemcpyKind kind, Where where, simt::Site site) {
  const Block block{
      static_cast<std::byte*>(to), to_pitch, 0, static_cast<const std::byte*>(from), from_pitch, 0, width, height, 1};
  return copy(call, block, kind, where, site);
}

cudaError_t set(const char* call, cudaPitchedPtr to, std::size_t slice, int value, cudaExtent extent,
                cudaStream_t stream, simt::Site site) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return cudaSuccess;
  if (!program().machine().array_at(to.ptr))
    return defect(call, site, "the destination is memory of the host", cudaErrorInvalidValue);
  if (extent.width > to.pitch) return defect(call, site, "a row is wider than its pitch", cudaErrorInvalidValue);
  const std::size_t reaches = (extent.depth - 1) * slice + (extent.height - 1) * to.pitch + extent.width;
  if (const std::string wrong = beyond(to.ptr, reaches); !wrong.empty())
    return defect(call, site, wrong, cudaErrorInvalidValue);
  return in_stream(stream, call, site, [=] {
    for (std::size_t z = 0; z < extent.depth; ++z)
      for (std::size_t y = 0; y < extent.height; ++y)
        std::memset(static_cast<std::byte*>(to.ptr) + z * slice + y * to.pitch, value, extent.width);
    program().machine().copy_in(to.ptr, nullptr, 0);
    return cudaSuccess;
  });
}

cudaError_t copy_3d(const char* call, const cudaMemcpy3DParms* p, Where where, simt::Site site) {
  if (!p) return failed(cudaErrorInvalidValue);
  if (p->srcArray || p->dstArray)
    return defect(call, site, "a cudaArray: textures are not simulated", cudaErrorNotSupported);
  const auto begin = [](const cudaPitchedPtr& array, const cudaPos& at) {
    return static_cast<std::byte*>(array.ptr) + (at.z * array.ysize + at.y) * array.pitch + at.x;
  };
  const cudaPitchedPtr &to = p->dstPtr, &from = p->srcPtr;
  return copy(call,
              {begin(to, p->dstPos), to.pitch, to.pitch * to.ysize, begin(from, p->srcPos), from.pitch,
               from.pitch * from.ysize, p->extent.width, p->extent.height, p->extent.depth},
              p->kind, where, site);
}

std::optional<simt::DeviceVariable> variable_at(const void* begin) {
  for (const simt::DeviceVariable& v : simt::device_variables())
    if (v.begin == begin) return v;
  return {};
}

// Advice is for managed memory, and for nothing else.
cudaError_t advise(const void* pointer, std::size_t bytes) {
  const simt::DeviceArray* array = program().machine().array_at(pointer);
  if (!array || !array->managed || pinned.contains(array->begin) || !beyond(pointer, bytes).empty())
    return failed(cudaErrorInvalidValue);
  return cudaSuccess;
}
bool is_device(int device) {
  return device == 0 || device == cudaCpuDeviceId;
}

}  // namespace

cudaError_t allocate(void** pointer, std::size_t bytes, std::size_t element_bytes, simt::Padding padding,
                     const char* text, Memory memory, simt::Site) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  std::string name = variable_name(text);
  const int number = program().number_of(name);
  if (number > 1) name += "#" + std::to_string(number);
  try {
    const bool untyped = element_bytes == 0 || bytes % element_bytes != 0;
    if (untyped) element_bytes = 1, padding = nullptr;
    *pointer = program().machine().allocate(name.c_str(), bytes / element_bytes, element_bytes, padding);
    if (untyped) program().machine().forget_type(*pointer);
    if (memory != Memory::device) program().machine().manage(*pointer);
    if (memory == Memory::pinned) pinned.insert(*pointer);
    return cudaSuccess;
  } catch (const Error&) {
    return failed(cudaErrorMemoryAllocation);
  }
}
cudaError_t allocate_3d(cudaPitchedPtr* pointer, cudaExtent extent, const char* name, simt::Site site) {
  if (!pointer) return failed(cudaErrorInvalidValue);
  *pointer = {nullptr, (extent.width + 511) / 512 * 512, extent.width, extent.height};
  return allocate(&pointer->ptr, pointer->pitch * extent.height * extent.depth, 0, nullptr, name, Memory::device, site);
}

cudaError_t copy_symbol(void* variable, const void* host, void* into_host, std::size_t bytes, std::size_t offset,
                        simt::Site site) {
  try {
    if (host)
      simt::copy_to_variable(variable, offset, host, bytes);
    else
      simt::copy_from_variable(into_host, variable, offset, bytes);
    host_waits_for(nullptr);
    return cudaSuccess;
  } catch (const Error& error) {
    return defect(host ? "cudaMemcpyToSymbol" : "cudaMemcpyFromSymbol", site, error.what(), cudaErrorInvalidSymbol);
  }
}
cudaError_t symbol_address(void** pointer, const void* variable, simt::Site site) {
  if (const auto v = variable_at(variable)) return *pointer = v->begin, cudaSuccess;
  return defect("cudaGetSymbolAddress", site, "the symbol is no __device__ variable", cudaErrorInvalidSymbol);
}
cudaError_t symbol_size(std::size_t* bytes, const void* variable, simt::Site site) {
  if (const auto v = variable_at(variable)) return *bytes = v->bytes, cudaSuccess;
  return defect("cudaGetSymbolSize", site, "the symbol is no __device__ variable", cudaErrorInvalidSymbol);
}

}  // namespace flash::cuda

using flash::cuda::copy, flash::cuda::copy_2d, flash::cuda::copy_3d, flash::cuda::defect, flash::cuda::failed,
    flash::cuda::program;

// ---- allocation ---------------------------------------------------------------------------------------------------

namespace {
cudaError_t release(void* pointer, const char* call, flash::simt::Site site) {
  if (!pointer) return cudaSuccess;
  const flash::simt::DeviceArray* array = program().machine().array_at(pointer);
  if (!array || array->begin != pointer || array->variable || !array->live)
    return defect(call, site, "the pointer is not one that cudaMalloc gave, or was freed before",
                  cudaErrorInvalidValue);
  flash::cuda::pinned.erase(pointer);
  program().machine().release(pointer);
  return cudaSuccess;
}
}  // namespace

// It waits for all work of the device.
cudaError_t cudaFree(void* pointer, flash::simt::Site site) {
  flash::cuda::host_waits_for_all();
  return release(pointer, "cudaFree", site);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream, flash::simt::Site site) {
  return flash::cuda::in_stream(stream, "cudaFreeAsync", site, [=] { return release(pointer, "cudaFreeAsync", site); });
}
cudaError_t cudaFreeHost(void* pointer, flash::simt::Site site) {
  return cudaFree(pointer, site);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  *pool = &flash::cuda::default_pool;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  *pool = flash::cuda::current_pool;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  if (device != 0 || !flash::cuda::pools.contains(pool)) return failed(cudaErrorInvalidValue);
  flash::cuda::current_pool = pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (!pool || !properties || properties->allocType != cudaMemAllocationTypePinned)
    return failed(cudaErrorInvalidValue);
  *pool = *flash::cuda::pools.insert(new CUmemPool_st).first;
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  if (pool == &flash::cuda::default_pool || flash::cuda::pools.erase(pool) == 0) return failed(cudaErrorInvalidValue);
  if (flash::cuda::current_pool == pool) flash::cuda::current_pool = &flash::cuda::default_pool;
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (!flash::cuda::pools.contains(pool) || !value) return failed(cudaErrorInvalidValue);
  pool->values[attribute] = attribute < cudaMemPoolAttrReleaseThreshold
                                ? static_cast<std::uint64_t>(*static_cast<int*>(value))
                                : *static_cast<std::uint64_t*>(value);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (!flash::cuda::pools.contains(pool) || !value) return failed(cudaErrorInvalidValue);
  const std::uint64_t kept = pool->values[attribute], used = program().machine().used_memory();
  if (attribute < cudaMemPoolAttrReleaseThreshold)
    *static_cast<int*>(value) = static_cast<int>(kept);
  else
    *static_cast<std::uint64_t*>(value) = attribute == cudaMemPoolAttrReleaseThreshold ? kept : used;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t) {
  return flash::cuda::pools.contains(pool) ? cudaSuccess : failed(cudaErrorInvalidValue);
}

// ---- copies and sets ------------------------------------------------------------------------------------------------

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, flash::simt::Site site) {
  return copy("cudaMemcpy", to, from, bytes, kind, {}, site);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                            flash::simt::Site site) {
  return copy("cudaMemcpyAsync", to, from, bytes, kind, {stream, true}, site);
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                           flash::simt::Site site) {
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr, site);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream, flash::simt::Site site) {
  if (to_device != 0 || from_device != 0) return failed(cudaErrorInvalidDevice);
  return copy("cudaMemcpyPeer", to, from, bytes, cudaMemcpyDeviceToDevice, {stream, true}, site);
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind, flash::simt::Site site) {
  return copy_2d("cudaMemcpy2D", to, to_pitch, from, from_pitch, width, height, kind, {}, site);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream,
                              flash::simt::Site site) {
  return copy_2d("cudaMemcpy2DAsync", to, to_pitch, from, from_pitch, width, height, kind, {stream, true}, site);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes, flash::simt::Site site) {
  return flash::cuda::set("cudaMemset", {to, bytes, bytes, 1}, 0, value, {bytes, 1, 1}, nullptr, site);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream, flash::simt::Site site) {
  return flash::cuda::set("cudaMemset", {to, bytes, bytes, 1}, 0, value, {bytes, 1, 1}, stream, site);
}
cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                         flash::simt::Site site) {
  return cudaMemset2DAsync(to, pitch, value, width, height, nullptr, site);
}
cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t stream, flash::simt::Site site) {
  return flash::cuda::set("cudaMemset2D", {to, pitch, width, height}, 0, value, {width, height, 1}, stream, site);
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters, flash::simt::Site site) {
  return copy_3d("cudaMemcpy3D", parameters, {}, site);
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, cudaStream_t stream, flash::simt::Site site) {
  return copy_3d("cudaMemcpy3DAsync", parameters, {stream, true}, site);
}
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent, flash::simt::Site site) {
  return cudaMemset3DAsync(to, value, extent, nullptr, site);
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t stream,
                              flash::simt::Site site) {
  return flash::cuda::set("cudaMemset3D", to, to.pitch * to.ysize, value, extent, stream, site);
}

// ---- the host's memory, advice, what a pointer is -------------------------------------------------------------------

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  if (!pointer || bytes == 0 || flags > 15) return failed(cudaErrorInvalidValue);
  auto* const begin = static_cast<std::byte*>(pointer);
  if (program().machine().array_at(pointer) || flash::cuda::registered_at(begin) ||
      flash::cuda::registered_at(begin + bytes - 1))
    return failed(cudaErrorHostMemoryAlreadyRegistered);
  flash::cuda::registered[begin] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  if (flash::cuda::registered.erase(static_cast<std::byte*>(pointer)) == 0)
    return failed(cudaErrorHostMemoryNotRegistered);
  return cudaSuccess;
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer) {
  if (!flash::cuda::pinned.contains(pointer) && !flash::cuda::registered_at(pointer))
    return failed(cudaErrorInvalidValue);
  *flags = cudaHostAllocMapped;
  return cudaSuccess;
}
// Pinned memory has one address.
cudaError_t cudaHostGetDevicePointer(void** pointer, void* host, unsigned flags, flash::simt::Site site) {
  if (!pointer || flags != 0) return failed(cudaErrorInvalidValue);
  if (flash::cuda::registered_at(host))
    return defect("cudaHostGetDevicePointer", site,
                  "kernels cannot use memory of cudaHostRegister here; allocate it with cudaHostAlloc",
                  cudaErrorNotSupported);
  const flash::simt::DeviceArray* array = program().machine().array_at(host);
  if (!array || !array->managed) return failed(cudaErrorInvalidValue);
  *pointer = host;
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  return cudaMemAdvise(pointer, bytes, advice,
                       location.type == cudaMemLocationTypeDevice ? location.id : cudaCpuDeviceId);
}
cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice, int device) {
  if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy)
    return failed(cudaErrorInvalidValue);
  if (advice > cudaMemAdviseUnsetReadMostly && !flash::cuda::is_device(device)) return failed(cudaErrorInvalidDevice);
  return flash::cuda::advise(pointer, bytes);
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream) {
  if (flags != 0) return failed(cudaErrorInvalidValue);
  return cudaMemPrefetchAsync(pointer, bytes,
                              location.type == cudaMemLocationTypeDevice ? location.id : cudaCpuDeviceId, stream);
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, int device, cudaStream_t) {
  return flash::cuda::is_device(device) ? flash::cuda::advise(pointer, bytes) : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void* pointer, std::size_t bytes, unsigned flags) {
  if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost && flags != cudaMemAttachSingle)
    return failed(cudaErrorInvalidValue);
  return flash::cuda::advise(pointer, bytes);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (!attributes) return failed(cudaErrorInvalidValue);
  void* const at = const_cast<void*>(pointer);
  const flash::simt::DeviceArray* array = program().machine().array_at(pointer);
  if (!array || !array->live) {
    const bool known = flash::cuda::registered_at(pointer);
    *attributes = {known ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered, known ? 0 : cudaInvalidDeviceId, nullptr,
                   known ? at : nullptr};
    return cudaSuccess;
  }
  const bool host = flash::cuda::pinned.contains(array->begin);
  *attributes = {host             ? cudaMemoryTypeHost
                 : array->managed ? cudaMemoryTypeManaged
                                  : cudaMemoryTypeDevice,
                 0, at, array->managed ? at : nullptr};
  return cudaSuccess;
}
