// api.cpp: the host interface of api.hpp on one simulated device, and the report that a program leaves when it ends.
// What CUDA answers with an error code is answered so here. Calls that are defects (a copy past an array's end, a
// launch that no GPU takes) count as findings, too, since many programs ignore the code and go on with wrong data.
// Use: through <cuda_runtime.h>. Options and the report's place come from the environment (program.hpp).
#include "sim/cuda/api.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "sim/core/block.hpp"
#include "sim/core/code_names.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/core/variables.hpp"
#include "sim/cuda/program.hpp"
#include "sim/limits.hpp"

namespace flash::cuda {
namespace {

cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t error) {
  return last_error = error;
}

// The call is a defect of the program: say so, count it, give it CUDA's error.
cudaError_t defect(const char* call, simt::Site site, const std::string& what, cudaError_t error) {
  program().add_finding({"call", std::string("call: ") + call + ": " + what + "\n  calls  " + simt::site_of(site)});
  return failed(error);
}

// "&d_x", "(void**)&d_x", "reinterpret_cast<void**>(&s.x)": the variable's name.
std::string variable_name(std::string text) {
  if (const std::size_t at = text.rfind('&'); at != std::string::npos) text.erase(0, at + 1);
  while (!text.empty() && std::strchr("() ", text.back())) text.pop_back();
  while (!text.empty() && std::strchr("( ", text.front())) text.erase(0, 1);
  return text.empty() ? "array" : text;
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
    return cudaSuccess;
  } catch (const Error&) {
    return failed(cudaErrorMemoryAllocation);
  }
}

cudaError_t copy(const char* call, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 simt::Site site) {
  if (bytes == 0) return cudaSuccess;
  simt::MachineCore& machine = program().machine();
  const bool into_device = machine.array_at(to), from_device = machine.array_at(from);
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
  for (const std::string& wrong : {beyond(to, bytes), beyond(from, bytes)})
    if (!wrong.empty()) return defect(call, site, wrong, cudaErrorInvalidValue);
  if (into_device)
    machine.copy_in(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t copy_symbol(void* variable, const void* host, void* into_host, std::size_t bytes, std::size_t offset,
                        simt::Site site) {
  try {
    if (host)
      simt::copy_to_variable(variable, offset, host, bytes);
    else
      simt::copy_from_variable(into_host, variable, offset, bytes);
    return cudaSuccess;
  } catch (const Error& error) {
    return defect(host ? "cudaMemcpyToSymbol" : "cudaMemcpyFromSymbol", site, error.what(), cudaErrorInvalidSymbol);
  }
}

cudaError_t symbol_address(void** pointer, const void* variable, simt::Site site) {
  for (const simt::DeviceVariable& v : simt::device_variables())
    if (v.begin == variable) {
      *pointer = v.begin;
      return cudaSuccess;
    }
  return defect("cudaGetSymbolAddress", site, "the symbol is no __device__ variable", cudaErrorInvalidSymbol);
}

cudaError_t launch(simt::Launch& launch, simt::Site site) {
  if (simt::active_worker) {
    simt::active_worker = nullptr;
    throw Error("a kernel launches another: dynamic parallelism is not simulated");
  }
  try {
    program().run(launch);
    return cudaSuccess;
  } catch (const std::exception& error) {
    return defect((std::string("the launch of ") + launch.kernel_name).c_str(), site, error.what(),
                  cudaErrorInvalidConfiguration);
  }
}

cudaError_t allow_shared_memory(const void* kernel, cudaFuncAttribute attribute, int bytes, simt::Site site) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  try {
    program().machine().allow_shared_memory(kernel, bytes);
    return cudaSuccess;
  } catch (const Error& error) {
    return defect("cudaFuncSetAttribute", site, error.what(), cudaErrorInvalidValue);
  }
}

}  // namespace flash::cuda

using flash::cuda::copy, flash::cuda::defect, flash::cuda::failed, flash::cuda::program;

// ---- errors -------------------------------------------------------------------------------------------------------

namespace {

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"}};

const ErrorText& text_of(cudaError_t error) {
  for (const ErrorText& text : kErrors)
    if (text.error == error) return text;
  return kErrors[std::size(kErrors) - 1];
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}
const char* cudaGetErrorString(cudaError_t error) {
  return text_of(error).text;
}
cudaError_t cudaGetLastError() {
  return std::exchange(flash::cuda::last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return flash::cuda::last_error;
}

// ---- the device ---------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}
// The limits of the profile; what only a real chip has (clocks, caches) is an H200's or an A100's.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  const flash::Profile profile = program().machine().options().profile;
  const bool hopper = profile == flash::Profile::sm_90;
  *p = {};
  std::snprintf(p->name, sizeof p->name, "FlashPhases simulator (%s)", hopper ? "sm_90" : "sm_80");
  p->totalGlobalMem = flash::simt::DeviceMemory::kTotal;
  p->sharedMemPerBlock = flash::kSharedWithoutAsking;
  p->sharedMemPerBlockOptin = flash::shared_memory_limit(profile);
  p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin + 1024;
  p->totalConstMem = 65536;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32, p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = hopper ? 9 : 8, p->minor = 0;
  p->multiProcessorCount = hopper ? 132 : 108;
  p->maxThreadsPerMultiProcessor = 2048, p->maxBlocksPerMultiProcessor = 32;
  p->l2CacheSize = (hopper ? 60 : 40) * 1024 * 1024, p->memoryBusWidth = hopper ? 6144 : 5120;
  p->clockRate = hopper ? 1980000 : 1410000, p->memoryClockRate = hopper ? 3201000 : 1215000;
  p->concurrentKernels = p->managedMemory = p->concurrentManagedAccess = p->unifiedAddressing = 1;
  p->canMapHostMemory = p->cooperativeLaunch = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = p.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrConcurrentManagedAccess:
      *value = p.concurrentManagedAccess;
      break;
    case cudaDevAttrCooperativeLaunch:
      *value = p.cooperativeLaunch;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    default:
      return failed(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
// Every launch is over when its call returns. A failed assert ends a GPU's context: from then on this is the answer.
cudaError_t cudaDeviceSynchronize() {
  return program().assertion_failed() ? failed(cudaErrorAssert) : cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = flash::simt::DeviceMemory::kTotal;
  *free = *total - program().machine().used_memory();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}

// ---- streams and events -------------------------------------------------------------------------------------------

struct CUstream_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point time{};
  bool recorded = false;
};

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaDeviceSynchronize();
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (!event) return failed(cudaErrorInvalidResourceHandle);
  *event = {std::chrono::steady_clock::now(), true};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event ? cudaSuccess : failed(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return cudaEventSynchronize(event);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin || !end || !begin->recorded || !end->recorded) return failed(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

// ---- memory -------------------------------------------------------------------------------------------------------

cudaError_t cudaFree(void* pointer, flash::simt::Site site) {
  if (!pointer) return cudaSuccess;
  const flash::simt::DeviceArray* array = program().machine().array_at(pointer);
  if (!array || array->begin != pointer || array->variable || !array->live)
    return defect("cudaFree", site, "the pointer is not one that cudaMalloc gave, or was freed before",
                  cudaErrorInvalidValue);
  program().machine().release(pointer);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t, flash::simt::Site site) {
  return cudaFree(pointer, site);
}
cudaError_t cudaFreeHost(void* pointer, flash::simt::Site site) {
  return cudaFree(pointer, site);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, flash::simt::Site site) {
  return copy("cudaMemcpy", to, from, bytes, kind, site);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t,
                            flash::simt::Site site) {
  return copy("cudaMemcpyAsync", to, from, bytes, kind, site);
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind, flash::simt::Site site) {
  if (width > to_pitch || width > from_pitch)
    return defect("cudaMemcpy2D", site, "a row is wider than its pitch", cudaErrorInvalidValue);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = copy("cudaMemcpy2D", static_cast<std::byte*>(to) + row * to_pitch,
                                   static_cast<const std::byte*>(from) + row * from_pitch, width, kind, site);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t,
                              flash::simt::Site site) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind, site);
}
// Pinned memory has one address.
cudaError_t cudaHostGetDevicePointer(void** pointer, void* host, unsigned) {
  const flash::simt::DeviceArray* array = program().machine().array_at(host);
  if (!array || !array->managed) return failed(cudaErrorInvalidValue);
  *pointer = host;
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes, flash::simt::Site site) {
  if (bytes == 0) return cudaSuccess;
  if (!program().machine().array_at(to))
    return defect("cudaMemset", site, "the destination is memory of the host", cudaErrorInvalidValue);
  if (const std::string wrong = flash::cuda::beyond(to, bytes); !wrong.empty())
    return defect("cudaMemset", site, wrong, cudaErrorInvalidValue);
  std::memset(to, value, bytes);
  program().machine().copy_in(to, nullptr, 0);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t, flash::simt::Site site) {
  return cudaMemset(to, value, bytes, site);
}
cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t) {
  return cudaSuccess;
}
