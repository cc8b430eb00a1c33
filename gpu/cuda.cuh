// cuda.cuh: the CUDA machine: Machine, Array, launch and shared as on the simulator, on the device of the process.
// Kernels compiled by nvcc are ordinary CUDA; this file adds four names of ours and the host types' twins.
// Use: through "gpu/kernel.cuh" in kernel files; host files that need on_gpu::Machine include it with CUDA's headers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/error.hpp"
#include "sim/limits.hpp"
#include "sim/machine_options.hpp"
#include "sim/number.hpp"

namespace flash::inline on_gpu {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // not an error of the next launch
  throw MachineError(std::string(what) + ": " + cudaGetErrorString(status));
}

// The kernel's type for a host type: same bits, CUDA's name.
template <class T>
struct DeviceType {
  using type = T;
};
template <>
struct DeviceType<flash::half> {
  using type = __half;
};
template <>
struct DeviceType<flash::bfloat16> {
  using type = __nv_bfloat16;
};
template <class T>
using device_t = typename DeviceType<T>::type;

template <class T>
class Array {
 public:
  Array(const std::string& name, std::size_t count) : size_(count) {
    const cudaError_t status = cudaMalloc(&data_, count * sizeof(T));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not an error of the next launch
      throw OutOfMemory("cudaMalloc of " + name + ": out of memory, " + std::to_string(count * sizeof(T)) +
                        " bytes wanted");
    }
    check_cuda(status, ("cudaMalloc of " + name).c_str());
    // Poison: NaN. compute-sanitizer's initcheck would take it for data: not there.
    if (!std::getenv("FLASH_NO_POISON")) check_cuda(cudaMemset(data_, 0xff, count * sizeof(T)), "cudaMemset");
  }
  Array(Array&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Array& operator=(Array&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Array() { cudaFree(data_); }
  T* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

class Machine {
 public:
  explicit Machine(const MachineOptions& options = {}) : options_(options) {}
  const MachineOptions& options() const { return options_; }
  const std::vector<KernelReport>& reports() const { return reports_; }
  const std::vector<Finding>& findings() const { return findings_; }  // always empty: the GPU does not tell
  const std::vector<TraceEvent>& trace() const { return trace_; }     // likewise
  void clear() { reports_.clear(); }
  void add_report(KernelReport report) { reports_.push_back(std::move(report)); }
  // Should a launch return when its kernel is done (the default), or at once, as the timer wants it?
  void wait_for_kernels(bool wait) { wait_ = wait; }
  bool waits() const { return wait_; }

  template <class T>
  Array<device_t<T>> alloc(const std::string& name, std::size_t count) {
    return Array<device_t<T>>(name, count);
  }
  template <class T>
  Array<device_t<T>> upload(const std::string& name, const T* host, std::size_t count) {
    Array<device_t<T>> array(name, count);
    upload(array, host);
    return array;
  }
  template <class T>
  void upload(Array<device_t<T>>& array, const T* host) {
    check_cuda(cudaMemcpy(array.data(), host, array.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  template <class T>
  void download(T* host, const Array<device_t<T>>& array) {
    check_cuda(cudaGetLastError(), "launch");  // <<<>>> itself says nothing
    check_cuda(cudaMemcpy(host, array.data(), array.size() * sizeof(T), cudaMemcpyDeviceToHost), "download");
  }

 private:
  MachineOptions options_;
  bool wait_ = true;
  std::vector<KernelReport> reports_;
  std::vector<Finding> findings_;
  std::vector<TraceEvent> trace_;
};

struct NoShared {};

// Waits for the kernel, so that its errors belong to this launch (unless the timer runs).
// The kernel's name in reports is left to profilers.
template <class S = NoShared, class... Parameters, class... Arguments>
void launch(Machine& machine, void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "launch: one argument per kernel parameter");
  constexpr std::size_t kShared = std::is_same_v<S, NoShared> ? 0 : sizeof(S);
  KernelReport report;
  report.kernel = "kernel";
  report.grid = {grid.x, grid.y, grid.z}, report.block = {block.x, block.y, block.z};
  report.ledger.shared_bytes_peak = kShared;
  check_launch(machine.options().profile, report.grid, report.block, kShared);
  if (kShared > 48 * 1024)
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kShared)),
               "shared memory opt-in");
  std::tuple<Parameters...> values{static_cast<Parameters>(arguments)...};
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        check_cuda(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, kShared, nullptr),
                   "launch");
      },
      values);
  if (machine.waits()) check_cuda(cudaDeviceSynchronize(), "kernel");
  machine.add_report(std::move(report));
}

#if defined(__CUDACC__)
// The block's shared memory, of which the launch gives sizeof(S) bytes or more, as a struct.
template <class S>
__device__ __forceinline__ S& shared() {
  extern __shared__ __align__(1024) unsigned char flash_shared_memory[];
  return *reinterpret_cast<S*>(flash_shared_memory);
}

// Begins a named region of the warp in the simulator's trace; nothing here.
__device__ __forceinline__ void trace_mark(const char*, long = 0) {}
// Shows a number in the recording of the simulator; nothing here: the machine code is as without it.
#define trace_value(name, row, value) static_cast<void>(sizeof(name) + sizeof(row) + sizeof(value))
#endif

}  // namespace flash::inline on_gpu
