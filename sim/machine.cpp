// machine.cpp: a machine as host code sees it: arrays, what its launches have left, which machine is the current one.
// What runs a launch is in sim/launch.cpp; both work on a MachineState.
// Use: see machine.hpp.
#include "sim/machine.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "sim/core/code_names.hpp"
#include "sim/limits.hpp"
#include "sim/machine_state.hpp"
#include "sim/report/trace.hpp"

namespace flash::simt {
namespace {

// All machines that live, in the order of their making: the last one of a thread is its current one. A machine may be
// destroyed by any thread and in any order.
struct Living {
  struct Entry {
    MachineCore* machine;
    bool checked;
    std::thread::id thread;
  };
  std::mutex mutex;
  std::vector<Entry> machines;
};

Living& living() {
  static Living all;
  return all;
}

}  // namespace

std::string kernel_name(const void* kernel, const char* in_launch) {
  return kernel ? function_name(kernel) : as_written(in_launch);
}

const std::vector<KernelReport>& MachineState::named_reports() {
  const std::size_t first = reports.size() - unnamed.size();
  for (std::size_t i = 0; i < unnamed.size(); ++i)
    reports[first + i].kernel = kernel_name(unnamed[i].first, unnamed[i].second);
  unnamed.clear();
  return reports;
}

MachineCore::MachineCore(const MachineOptions& options, bool checked) : state_(std::make_unique<MachineState>()) {
  refuse_two_layouts();
  state_->options = options;
  state_->checked = checked;
  if (options.threads < 0) refuse("threads", options.threads, "0 (all cores) or more", "pass 0");
  if (checked) state_->shadow = std::make_unique<GlobalShadow>(state_->memory);
  const std::lock_guard lock(living().mutex);
  living().machines.push_back({this, checked, std::this_thread::get_id()});
}

MachineCore::~MachineCore() {
  {
    const std::lock_guard lock(living().mutex);
    std::erase_if(living().machines, [this](const Living::Entry& entry) { return entry.machine == this; });
  }
  const std::string& path = state_->options.trace;
  if (path.empty() || path == "memory") return;
  std::ofstream file(path);
  write_trace(file, state_->trace, reports());
}

const MachineOptions& MachineCore::options() const {
  return state_->options;
}
const std::vector<KernelReport>& MachineCore::reports() const {
  return state_->named_reports();
}
const std::vector<Finding>& MachineCore::findings() const {
  return state_->findings;
}
const std::vector<TraceEvent>& MachineCore::trace() const {
  return state_->trace;
}

void MachineCore::clear() {
  state_->reports.clear();
  state_->unnamed.clear();
  state_->findings.clear();
  state_->trace.clear();
}

void* MachineCore::allocate(const char* name, std::size_t count, std::size_t element_bytes, Padding padding) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes))
    refuse("device memory for " + std::string(name),
           std::to_string(count) + " elements of " + std::to_string(element_bytes) + " bytes", "less than 2^64 bytes",
           "correct the count");
  return state_->memory.allocate(name, bytes, element_bytes, padding);
}

void MachineCore::release(const void* data) {
  if (state_->shadow) state_->shadow->forget(data);
  state_->memory.release(data);
}

void MachineCore::copy_in(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // an empty vector's data() may be null
  DeviceMemory& memory = state_->memory;
  memory.arrays[memory.owner(to)].initialised = true;
}

void MachineCore::copy_out(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

const DeviceMemory& MachineCore::memory() const {
  return state_->memory;
}

const DeviceArray* MachineCore::array_at(const void* address) const {
  const DeviceMemory& memory = state_->memory;
  if (!memory.contains(address)) return nullptr;
  const std::size_t i = memory.owner(address);
  return i < memory.arrays.size() ? &memory.arrays[i] : nullptr;
}

void MachineCore::manage(const void* begin) {
  DeviceArray& array = state_->memory.arrays[state_->memory.owner(begin)];
  state_->memory.clear(array.begin);
  array.managed = array.initialised = true;
}

void MachineCore::forget_type(const void* begin) {
  state_->memory.arrays[state_->memory.owner(begin)].untyped = true;
}

std::size_t MachineCore::used_memory() const {
  return state_->memory.used();
}

MachineCore& MachineCore::current(bool checked, const char* action, const char* kernel) {
  if (std::exchange(active_worker, nullptr))  // from here on accesses are ours, not the kernel's
    refuse("a call in a kernel", action + std::string(kernel), "it in host code",
           "dynamic parallelism is not simulated");
  const std::lock_guard lock(living().mutex);
  const std::vector<Living::Entry>& all = living().machines;
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry)
    if (entry->checked == checked && entry->thread == std::this_thread::get_id()) return *entry->machine;
  refuse("the current machine", "none", std::string("one that this thread made, for ") + action + kernel,
         "construct a Machine before it");
}

void MachineCore::allow_shared_memory(const void* kernel, std::int64_t bytes) {
  const Profile profile = state_->options.profile;
  const auto limit = static_cast<std::int64_t>(shared_memory_limit(profile));
  if (bytes < 0 || bytes > limit)
    refuse("dynamic shared memory of " + function_name(kernel), std::to_string(bytes) + " bytes",
           "0 to " + std::to_string(limit) + (profile == Profile::sm_80 ? " on sm_80" : " on sm_90"),
           "use smaller tiles");
  state_->allowed_shared[kernel] = static_cast<std::size_t>(bytes);
}

void MachineCore::run(Launch& launch) {
  run_launch(*state_, launch);
}

}  // namespace flash::simt
