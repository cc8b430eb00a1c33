// machine.hpp: the simulated device as host code sees it: on_sim::Machine (fast) and on_checked::Machine (all checks).
// Same words as on_gpu (gpu/cuda.cuh). A machine holds device arrays, runs launches one after another, keeps their
// reports, findings and trace, and is the current one of its OS thread while it lives: kernel<<<grid, block>>>(…) goes
// there, as to CUDA's current device. Use: see tests/simt_machine.cu; kernel files include "gpu/kernel.cuh" instead.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/padding.hpp"
#include "sim/machine_options.hpp"

namespace flash::simt {

struct DeviceArray;
class DeviceMemory;
struct Launch;
struct MachineState;

// The kernel's type for a host type, on the fast machine and on the checked one: the same bits, another name.
// gpu/kernel.cuh says which those of halfs are.
template <class T, bool kChecked>
struct DeviceType {
  using type = T;
};
template <class T, bool kChecked>
using device_t = typename DeviceType<T, kChecked>::type;

// What does not depend on element types; compiled once, never instrumented.
class MachineCore {
 public:
  MachineCore(const MachineCore&) = delete;
  MachineCore& operator=(const MachineCore&) = delete;

  const MachineOptions& options() const;
  const std::vector<KernelReport>& reports() const;  // one per launch, in order
  const std::vector<Finding>& findings() const;      // of all launches
  const std::vector<TraceEvent>& trace() const;      // empty unless MachineOptions::trace is set
  void clear();                                      // forgets reports, findings and trace; arrays stay

  // For Array and launch only.
  void* allocate(const char* name, std::size_t count, std::size_t element_bytes, Padding padding);
  void release(const void* data);
  void copy_in(void* to, const void* from, std::size_t bytes);
  static void copy_out(void* to, const void* from, std::size_t bytes);
  void run(Launch& launch);
  // The array whose memory or red zone an address is in, freed ones included; null: it is the host's.
  const DeviceArray* array_at(const void* address) const;
  const DeviceMemory& memory() const;
  std::size_t used_memory() const;
  // Of an array that begins there: the host uses it, too, without a call that tells. It is zero and counts as written.
  void manage(const void* begin);
  // Of an array that begins there: nobody told what its elements are.
  void forget_type(const void* begin);
  // cudaFuncSetAttribute: launches of this kernel may ask for so much shared memory.
  void allow_shared_memory(const void* kernel, std::int64_t bytes);

 protected:
  MachineCore(const MachineOptions& options, bool checked);
  ~MachineCore();
  // The youngest machine of its kind that this OS thread made: launches go there. Refuses when there is none, and says
  // what it is wanted for: "the launch of " "k".
  static MachineCore& current(bool checked, const char* action, const char* kernel);

 private:
  std::unique_ptr<MachineState> state_;
};

// A device array; frees itself. data() goes to kernels; host code must not follow it (it would not work on a GPU).
template <class T, bool kChecked>
class Array {
 public:
  Array(MachineCore& machine, const std::string& name, std::size_t count)
      : machine_(&machine),
        data_(static_cast<T*>(machine.allocate(name.c_str(), count, sizeof(T), padding_of<T>()))),
        size_(count) {}
  Array(Array&& other) noexcept
      : machine_(other.machine_), data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Array& operator=(Array&& other) noexcept {
    std::swap(machine_, other.machine_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Array() {
    if (data_) machine_->release(data_);
  }
  T* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  MachineCore* machine_;
  T* data_;
  std::size_t size_;
};

template <bool kChecked>
class BasicMachine : public MachineCore {
 public:
  static constexpr bool checks = kChecked;
  explicit BasicMachine(const MachineOptions& options = {}) : MachineCore(options, kChecked) {}
  static MachineCore& current(const char* action, const char* kernel = "") {
    return MachineCore::current(kChecked, action, kernel);
  }

  template <class T>
  Array<device_t<T, kChecked>, kChecked> alloc(const std::string& name, std::size_t count) {
    return Array<device_t<T, kChecked>, kChecked>(*this, name, count);
  }
  template <class T>
  Array<device_t<T, kChecked>, kChecked> upload(const std::string& name, const T* host, std::size_t count) {
    Array<device_t<T, kChecked>, kChecked> array(*this, name, count);
    copy_in(array.data(), host, count * sizeof(T));
    return array;
  }
  // Replaces the contents of an existing array.
  template <class T>
  void upload(Array<device_t<T, kChecked>, kChecked>& array, const T* host) {
    copy_in(array.data(), host, array.size() * sizeof(T));
  }
  template <class T>
  void download(T* host, const Array<device_t<T, kChecked>, kChecked>& array) {
    copy_out(host, array.data(), array.size() * sizeof(T));
  }
};

}  // namespace flash::simt

namespace flash::on_sim {
class Machine : public simt::BasicMachine<false> {
  using BasicMachine::BasicMachine;
};
template <class T>
using Array = simt::Array<T, false>;
}  // namespace flash::on_sim

namespace flash::on_checked {
class Machine : public simt::BasicMachine<true> {
  using BasicMachine::BasicMachine;
};
template <class T>
using Array = simt::Array<T, true>;
}  // namespace flash::on_checked
