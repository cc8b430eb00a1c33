// uninitialised.cpp: reads of memory that nobody has written; a struct's padding may be such.
// What a copy takes along of it: carried.cpp.
// Use: see checker.hpp.
#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "sim/checks/checker.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {
namespace {

// A type's padding, looked up once.
const std::vector<unsigned char>& padding_bytes(Padding padding, std::size_t bytes) {
  static std::mutex mutex;
  static std::map<Padding, std::vector<unsigned char>> known;
  const std::lock_guard lock(mutex);
  std::vector<unsigned char>& found = known[padding];
  if (found.empty()) found.resize(bytes), padding(found.data());
  return found;
}

}  // namespace

bool Checker::uninitialised(Access access_, Epoch mine, const void* address, std::size_t bytes) {
  const Outside outside;
  if (only_padding(static_cast<const std::byte*>(address), bytes)) return false;
  if (copying_ && may_carry(static_cast<const std::byte*>(address))) {
    read_unwritten_ = true;
    return false;
  }
  if (worker_.findings.repeated("uninitialised", site_index_of(mine), 0, worker_.block)) return true;
  const char* const now = is_reduction(access_) ? named(mine, access_) : name_of(access_);
  worker_.findings.add({"uninitialised",
                        std::string(now) + " of " + element(address, bytes) + " (" + counted(bytes) + ")",
                        "write it before reading it: fresh memory holds NaN",
                        {side(now, mine)},
                        worker_.block});
  return true;
}

// Was this byte of shared or global memory ever written?
bool Checker::written(const std::byte* at) const {
  const bool global = global_.memory.contains(at);
  const Cells& cells = global ? global_.cells : home_->cells_;
  const auto offset = global ? global_.memory.offset(at) : static_cast<std::size_t>(at - home_->shared_);
  const unsigned state = cells.state[offset / 4], level = state & Cells::kLevel;
  if (state & Cells::kCarried && carried_at(at).bytes) return false;
  const Cells::Plane& plane = cells.planes[level == 0 ? 0 : offset % 4 & (level == Cells::kHalves ? 2 : 3)];
  const Epoch begin = global ? Epoch{1} : block_begin_;
  return plane.write[offset / 4] >= begin ||
         (state & Cells::kUnusual && (plane.atomics[offset / 4].one >= begin || plane.stores[offset / 4].one >= begin));
}

// Is all that was not written padding? The type of the memory tells. Where it has none and a struct is copied: what may
// be padding, that is to say what lies behind a member and before an address that a larger member could have.
bool Checker::only_padding(const std::byte* address, std::size_t bytes) const {
  const std::byte* begin = home_->shared_;
  std::size_t element_bytes = worker_.shared_struct_bytes;
  Padding padding = worker_.shared_padding;
  if (global_.memory.contains(address)) {
    const DeviceArray& array = global_.memory.arrays[global_.memory.owner(address)];
    begin = array.begin, element_bytes = array.element_bytes, padding = array.padding;
  }
  if (padding) {
    const std::vector<unsigned char>& known = padding_bytes(padding, element_bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      if (!written(address + i) && !known[static_cast<std::size_t>(address + i - begin) % element_bytes]) return false;
    return true;
  }
  const std::byte* const end = copy_.begin + copy_.bytes;
  for (const std::byte* at = copy_.begin; at < end; ++at) {
    if (written(at)) continue;
    const std::byte* const first = at;
    while (at < end && !written(at)) ++at;
    const auto stop = reinterpret_cast<std::uintptr_t>(at);
    if (first == copy_.begin || static_cast<std::uintptr_t>(at - first) >= std::min<std::uintptr_t>(stop & -stop, 16))
      return false;
  }
  return copy_.bytes > 0;
}

}  // namespace flash::simt
