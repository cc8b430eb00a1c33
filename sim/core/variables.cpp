// variables.cpp: see variables.hpp. The linker joins the tables of all object files and marks their ends.
// Thread-local variables lie at a fixed distance from the thread pointer, since a program defines its own.
// Use: see variables.hpp.
#include "sim/core/variables.hpp"

#include <algorithm>
#include <cstring>

#include "sim/error.hpp"

extern "C" {
// Names that the linker makes where a section of this name exists.
extern const flash::simt::SharedUse __start_flash_shared[] __attribute__((weak));
extern const flash::simt::SharedUse __stop_flash_shared[] __attribute__((weak));
extern const flash::simt::DeviceVariable __start_flash_device[] __attribute__((weak));
extern const flash::simt::DeviceVariable __stop_flash_device[] __attribute__((weak));
}

namespace flash::simt {
namespace {
constexpr std::ptrdiff_t kNear = 64 * 1024;
}

std::vector<DeviceVariable> device_variables() {
  std::vector<DeviceVariable> all(__start_flash_device, __stop_flash_device);
  const auto before = [](const DeviceVariable& a, const DeviceVariable& b) { return a.begin < b.begin; };
  const auto same = [](const DeviceVariable& a, const DeviceVariable& b) { return a.begin == b.begin; };
  std::sort(all.begin(), all.end(), before);
  all.erase(std::unique(all.begin(), all.end(), same), all.end());  // an inline variable of several files
  return all;
}

namespace {

// The bytes of a variable that a copy means.
std::byte* part_of(const char* call, const void* variable, std::size_t offset, std::size_t bytes) {
  for (const DeviceVariable& v : device_variables()) {
    if (v.begin != variable) continue;
    if (offset > v.bytes || bytes > v.bytes - offset)
      refuse(std::string("the end of ") + call + " of " + v.name, std::to_string(offset + bytes) + " bytes",
             "at most " + std::to_string(v.bytes), "copy no more than sizeof(" + std::string(v.name) + ")");
    return v.begin + offset;
  }
  refuse(std::string("the symbol of ") + call, "a variable of the host", "a __device__ or __constant__ variable",
         "declare it so, or use cudaMemcpy");
}

}  // namespace

void copy_to_variable(const void* variable, std::size_t offset, const void* from, std::size_t bytes) {
  std::memcpy(part_of("cudaMemcpyToSymbol", variable, offset, bytes), from, bytes);
}
void copy_from_variable(void* to, const void* variable, std::size_t offset, std::size_t bytes) {
  std::memcpy(to, part_of("cudaMemcpyFromSymbol", variable, offset, bytes), bytes);
}

SharedUse::Place::operator std::ptrdiff_t() const {
#if defined(__aarch64__)
  // The operands of movz and movk: 16 bits of each instruction, from its bit 5 on; the first has the upper half.
  return (word >> 5 & 0xffff) << 16 | (word >> 37 & 0xffff);
#else
  return word;
#endif
}

SharedLayout::SharedLayout(const Launch& launch) {
  std::vector<SharedUse> uses;
  for (const SharedUse* use = __start_flash_shared; use != __stop_flash_shared; ++use) {
    if (use->function != launch.kernel && use->function != reinterpret_cast<const void*>(launch.invoke)) continue;
    const auto same = [use](const SharedUse& other) { return other.at == use->at; };
    if (std::none_of(uses.begin(), uses.end(), same)) uses.push_back(*use);
  }
  if (uses.empty()) return;
  std::sort(uses.begin(), uses.end(), [](const SharedUse& a, const SharedUse& b) { return a.at < b.at; });
  begin_ = uses.front().at;
  for (const SharedUse& use : uses) {
    const auto at = static_cast<std::size_t>(use.at - begin_);
    const std::size_t bytes = use.bytes < 0 ? launch.shared_bytes : static_cast<std::size_t>(use.bytes);
    if (use.bytes >= 0) static_bytes_ += (bytes + 3) / 4 * 4;
    arrays_.push_back({use.name, at, bytes});
    pieces_.resize(std::max(pieces_.size(), (at + bytes + 15) / 16));
    for (std::size_t piece = at / 16; piece * 16 < at + bytes; ++piece)
      pieces_[piece] = (piece + 1) * 16 <= at + bytes ? kWhole : kPart;
  }
}

std::byte* SharedLayout::region() const {
  return static_cast<std::byte*>(__builtin_thread_pointer()) + begin_;
}

bool SharedLayout::in_array(std::size_t offset, std::size_t bytes) const {
  return std::any_of(arrays_.begin(), arrays_.end(), [=](const Array& array) {
    return offset >= array.at && offset + bytes <= array.at + array.bytes;
  });
}

const SharedLayout::Array* SharedLayout::nearest(std::ptrdiff_t offset) const {
  const Array* best = nullptr;
  std::ptrdiff_t least = kNear;
  for (const Array& array : arrays_) {
    const auto begin = static_cast<std::ptrdiff_t>(array.at), end = begin + static_cast<std::ptrdiff_t>(array.bytes);
    const std::ptrdiff_t distance = offset < begin ? begin - offset : offset < end ? 0 : offset - end;
    if (distance < least) least = distance, best = &array;
  }
  return best;
}

}  // namespace flash::simt
