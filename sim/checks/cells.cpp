// cells.cpp: address space for the planes, and the moment when a word's cell becomes several.
// All planes are reserved at once; the kernel gives zeroed pages as they are touched.
// Use: see cells.hpp.
#include "sim/checks/cells.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "sim/error.hpp"

namespace flash::simt {
namespace {

constexpr std::size_t kPage = 4096, kTables = 32;  // at most: each may end in a page that is not full

// A page that is only looked at takes no memory: most marks are zero on both sides.
template <class T>
void assign(T& to, const T& from) {
  if (std::memcmp(&to, &from, sizeof to) != 0) to = from;
}

void copy(const Cells::Plane& from, const Cells::Plane& to, std::size_t word, bool unusual) {
  assign(to.write[word], from.write[word]);
  assign(to.readers[word], from.readers[word]);
  if (!unusual) return;
  assign(to.atomics[word], from.atomics[word]);
  assign(to.loads[word], from.loads[word]);
  assign(to.stores[word], from.stores[word]);
}

}  // namespace

Space::Space(std::size_t bytes) : bytes_(bytes + kTables * kPage) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error("cannot reserve address space for the checks: " + std::to_string(bytes_ >> 30) +
                " GiB; raise the limit (ulimit -v); where a system has 39-bit addresses, take the machine sim");
  memory_ = static_cast<std::byte*>(memory);
}
Space::~Space() {
  munmap(memory_, bytes_);
}
void* Space::take(std::size_t bytes) {
  std::byte* const next = memory_ + taken_;
  taken_ += (bytes + kPage - 1) / kPage * kPage;
  if (taken_ > bytes_) throw Error("the checks' tables need more address space than was reserved for them");
  return next;
}

template <class T>
void Table<T>::forgotten(void* memory, std::size_t bytes) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  if ((reinterpret_cast<std::uintptr_t>(memory) | bytes) % page == 0)
    madvise(memory, bytes, MADV_DONTNEED);
  else
    std::memset(memory, 0, bytes);  // pages of 64 KiB
}
template class Table<Epoch>;
template class Table<Marks>;
template class Table<std::uint8_t>;
template class Table<unsigned>;

Cells::Cells(Space& space, std::size_t words)
    : planes{Plane(space, words), Plane(space, words), Plane(space, words), Plane(space, words)}, state(space, words) {}

void Cells::forget(std::size_t first, std::size_t words) {
  const std::uint8_t used = __atomic_load_n(&used_, __ATOMIC_RELAXED);
  for (std::size_t i = 0; i < planes.size(); ++i) {
    if (i > 0 && !(used & (i == 2 ? kLevel : kSingle))) continue;
    Plane& plane = planes[i];
    plane.write.forget(first, words), plane.readers.forget(first, words);
    if (!(used & kUnusual)) continue;
    plane.atomics.forget(first, words), plane.loads.forget(first, words), plane.stores.forget(first, words);
  }
  state.forget(first, words);
}

unsigned Cells::split(std::size_t word, unsigned bytes) {
  const std::uint8_t wanted = bytes == 2 ? kHalves : kSingle;
  uses(wanted);
  for (;;) {
    std::uint8_t now = __atomic_load_n(&state[word], __ATOMIC_ACQUIRE);
    const unsigned level = now & kLevel;
    if (level == kSplitting) continue;  // somebody else is at it
    if (level >= wanted) return now;
    const std::uint8_t rest = now & static_cast<std::uint8_t>(~kLevel);
    if (!__atomic_compare_exchange_n(&state[word], &now, rest | kSplitting, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      continue;
    const bool unusual = now & kUnusual;
    if (level == 0) copy(planes[0], planes[2], word, unusual);
    if (wanted == kSingle) copy(planes[0], planes[1], word, unusual), copy(planes[2], planes[3], word, unusual);
    // What another worker set meanwhile stays.
    now = __atomic_fetch_xor(&state[word], kSplitting ^ wanted, __ATOMIC_SEQ_CST);
    return (now & ~unsigned{kLevel}) | wanted;
  }
}

}  // namespace flash::simt
