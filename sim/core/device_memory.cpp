// device_memory.cpp: see device_memory.hpp. Address space is reserved, memory is taken as it is written: a large array
// is one file of 0xff bytes, mapped over and over, of which the system copies the pages that somebody writes.
// Red zones stay inaccessible, so that in the fast build a far out-of-bounds access at least faults.
// Use: through Machine.
#include "sim/core/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sim/core/variables.hpp"
#include "sim/error.hpp"

namespace flash::simt {
namespace {
constexpr std::ptrdiff_t kVariableRedZone = 2048;  // sim/compiler/assembly.cpp
constexpr std::size_t kGranules = DeviceMemory::kReserved / DeviceMemory::kGranule;
constexpr std::size_t kOwnerBytes = kGranules * sizeof(std::uint32_t);
constexpr std::size_t kRemembered = 1024;  // arrays: the names of freed ones are for findings only
// Smaller arrays are filled at once. A process may have 65530 mappings: 40 GiB make 5120.
constexpr std::size_t kMapped = std::size_t{1} << 20, kPattern = std::size_t{8} << 20;

void* reserve(std::size_t bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Error("cannot reserve address space for device memory; raise the limit (ulimit -v)");
  return memory;
}
std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
// Maps a range anew, and with it gives back what memory it had.
bool map(std::byte* begin, std::size_t bytes, int protection, int file) {
  const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | (file < 0 ? MAP_ANONYMOUS : 0);
  return mmap(begin, bytes, protection, flags, file, 0) != MAP_FAILED;
}

// A file in memory, all of its kPattern bytes 0xff; below 0 where the system makes none.
int pattern() {
  static const int file = [] {
    const int made = memfd_create("fresh device memory", MFD_CLOEXEC);
    const std::vector<char> bytes(std::size_t{1} << 20, '\xff');
    for (std::size_t at = 0; made >= 0 && at < kPattern; at += bytes.size())
      if (write(made, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return close(made), -1;
    return made;
  }();
  return file;
}

// Makes the pages usable, each byte 0xff. False: the system has no room for them.
bool poison(std::byte* begin, std::size_t bytes) {
  const std::size_t pages = rounded(bytes, 4096);
  if (bytes < kMapped || pattern() < 0) {
    if (mprotect(begin, pages, PROT_READ | PROT_WRITE) != 0) return false;
    std::memset(begin, 0xff, bytes);
    return true;
  }
  for (std::size_t at = 0; at < pages; at += kPattern)
    if (!map(begin + at, std::min(pages - at, kPattern), PROT_READ | PROT_WRITE, pattern())) {
      map(begin, pages, PROT_NONE, -1);
      return false;
    }
  return true;
}
}  // namespace

DeviceMemory::DeviceMemory()
    : base_(static_cast<std::byte*>(reserve(kReserved, PROT_NONE))),
      owner_(static_cast<std::uint32_t*>(reserve(kOwnerBytes, PROT_READ | PROT_WRITE))) {
  for (const DeviceVariable& v : device_variables()) {
    const std::size_t element = v.element_bytes ? v.element_bytes : 1;
    arrays.push_back({v.element_bytes ? v.name : v.name + std::string(".bytes"), v.begin, v.bytes, element, true, true,
                      nullptr, true, v.constant != 0});
  }
  variables_ = arrays.size();
  if (variables_ == 0) return;
  // A multiple of 16 bytes away from the addresses, as device memory is.
  variables_begin_ = arrays.front().begin - kVariableRedZone;
  variables_begin_ -= reinterpret_cast<std::uintptr_t>(variables_begin_) % 16;
  variable_bytes_ = in_variables(arrays.back().begin + arrays.back().bytes + kVariableRedZone);
}

std::size_t DeviceMemory::variable_at(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  std::size_t first = 0, last = variables_;  // the last variable that begins at or before the address
  while (last - first > 1) {
    const std::size_t middle = (first + last) / 2;
    (arrays[middle].begin <= at ? first : last) = middle;
  }
  for (std::size_t i : {first, first + 1})
    if (i < variables_ && at >= arrays[i].begin - (i == first ? 0 : kVariableRedZone) &&
        at < arrays[i].begin + arrays[i].bytes + kVariableRedZone)
      return i;
  return first == 0 && variables_ > 0 && at < arrays[0].begin && at >= variables_begin_ ? 0 : arrays.size();
}

DeviceMemory::~DeviceMemory() {
  munmap(base_, kReserved);
  munmap(owner_, kOwnerBytes);
}

std::byte* DeviceMemory::allocate(const std::string& name, std::size_t bytes, std::size_t element_bytes,
                                  Padding padding) {
  const std::size_t extent = rounded(bytes + kGranule, kGranule) / kGranule;  // with its red zone, in granules
  const std::size_t first = bytes > kTotal - used_ ? 0 : find_room(extent);
  if (first == 0)
    refuse("device memory for " + name, std::to_string(bytes) + " bytes",
           "at most " + std::to_string(kTotal - used_) + ", what is left of " + std::to_string(kTotal),
           "use a smaller problem or free arrays");
  std::byte* begin = base_ + first * kGranule;
  if (bytes > 0 && !poison(begin, bytes)) throw Error("no memory for array " + name);
  arrays.push_back({name, begin, bytes, element_bytes, false, true, padding});
  ++live_, used_ += bytes;
  // The space before the first array is that array's, too: an index below 0 names it.
  for (std::size_t g = first == 1 ? 0 : first; g < first + extent; ++g)
    owner_[g] = static_cast<std::uint32_t>(arrays.size());
  next_ = first + extent;
  return begin;
}

// The first of so many granules without a live array, 0 if there are none. From the last array on and then from the
// start, so that a freed array's addresses are used again as late as possible and a stale pointer is noticed.
std::size_t DeviceMemory::find_room(std::size_t extent) const {
  for (const bool again : {false, true}) {
    const std::size_t end = again ? std::min(next_ + extent, kGranules) : kGranules;
    std::size_t first = again ? 1 : next_;
    for (std::size_t g = first; g < end; ++g) {
      if (owner_[g] != 0 && arrays[owner_[g] - 1].live) first = g + 1;
      if (g + 1 - first == extent) return first;
    }
  }
  return 0;
}

void DeviceMemory::release(const void* begin) {
  const std::size_t i = owner(begin);
  if (i >= arrays.size() || arrays[i].variable || arrays[i].begin != begin || !arrays[i].live) return;
  end_life(arrays[i]);
  if (arrays.size() >= kRemembered && arrays.size() > 2 * live_) forget_freed();
}

void DeviceMemory::end_life(DeviceArray& array) {
  array.live = false;
  --live_, used_ -= array.bytes;
  if (array.bytes > 0) map(array.begin, rounded(array.bytes, 4096), PROT_NONE, -1);
}

void DeviceMemory::clear(const std::byte* begin) {
  const DeviceArray& array = arrays[owner(begin)];
  if (array.bytes > 0 && !map(array.begin, rounded(array.bytes, 4096), PROT_READ | PROT_WRITE, -1))
    throw Error("no memory for array " + array.name);
}

std::byte* DeviceMemory::allocate_in_kernel(const std::string& name, std::size_t bytes) {
  if (arrays.size() == arrays.capacity() || bytes > kTotal - used_ || find_room(bytes / kGranule + 2) == 0)
    return nullptr;
  std::byte* const begin = allocate(name, bytes, 1, nullptr);
  arrays.back().of_kernel = arrays.back().untyped = true;
  return begin;
}

bool DeviceMemory::release_in_kernel(const void* begin) {
  const std::size_t i = contains(begin) ? owner(begin) : arrays.size();
  if (i >= arrays.size() || arrays[i].begin != begin || !arrays[i].live || !arrays[i].of_kernel) return false;
  end_life(arrays[i]);
  return true;
}

void DeviceMemory::forget_freed() {
  std::vector<DeviceArray> live;
  std::vector<std::uint32_t> index{0};  // as in owner_
  for (DeviceArray& array : arrays) {
    if (array.live) live.push_back(std::move(array));
    index.push_back(array.live ? static_cast<std::uint32_t>(live.size()) : 0);
  }
  for (std::size_t g = 0; g < kGranules; ++g)
    if (owner_[g] != 0) owner_[g] = index[owner_[g]];
  arrays = std::move(live);
}

}  // namespace flash::simt
