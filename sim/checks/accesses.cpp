// accesses.cpp: accesses that are not the hooks' of one number: atomics, rows of matrices, structs, kernels' heap;
// and addresses in none of the places where a kernel's memory usually is.
// Use: see checker.hpp.
#include "sim/checks/accesses.hpp"

#include <cstdint>
#include <mutex>
#include <string>

#include "sim/checks/keys.hpp"
#include "sim/core/code_names.hpp"
#include "sim/core/outside.hpp"

// The linker's: between them lie the constants of the program, or of the library that holds the kernels.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start, _end;

namespace flash::simt {

void Checker::atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site_) {
  if (unwatched_memory && worker_.in_shared(address)) return;  // nobody else sees it
  scope_ = scope, asked_ = true;
  const auto key = spot(site_) | std::uintptr_t{bytes} << kPieceShift;
  void* at = const_cast<void*>(address);
  const auto one = [&]<unsigned kBytes>() {
    return reads ? access<kBytes, Access::atomic>(at, key) : access<kBytes, Access::exchange>(at, key);
  };
  for_size<2, 4, 8, 16>(bytes, one);
  added_ = {};
  publish(address, true);
}

// Nobody keeps books of its elements. Most know it already, and workers share the line of the mark.
void writes_unwatched(DeviceMemory& memory, const void* address) {
  const std::size_t owner = memory.owner(address);
  if (owner >= memory.arrays.size()) return;
  bool* const mark = &memory.arrays[owner].initialised;
  if (!__atomic_load_n(mark, __ATOMIC_RELAXED)) __atomic_store_n(mark, true, __ATOMIC_RELAXED);
}

// The offset of an access that is to shared memory; if it is out of bounds or misaligned, the block ends.
std::size_t Checker::in_shared(const void* address, std::size_t bytes, Access access_, std::uintptr_t key) {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared_);
  if (offset + bytes > shared_bytes_ || offset % bytes != 0 || (layout_ && !layout_->holds(offset, bytes)))
    bad_address(address, bytes, access_, key);
  return offset;
}

// A lane's row of ldmatrix or stmatrix.
template <Access kAccess>
void Checker::row_of_matrix(const void* row, Site site_) {
  constexpr Access kTouches = is_write(kAccess) ? Access::write : Access::read;
  const Spot key = spot(site_);
  const std::size_t offset = in_shared(row, 16, kTouches, key);
  const unsigned s = site(key);
  counters.log(s, reinterpret_cast<std::uintptr_t>(row), 16, kAccess, kSharedSpace);
  if (others_watch_) tell_shared(worker_.rank, offset, 16, kAccess, key);
  touch_all<kOwn, 16, kTouches>(cells_, offset, running_ | Epoch{s} << kThreadBits, false, row);
}

void Checker::matrix_row(const void* row, Site site_) {
  row_of_matrix<Access::matrix_row>(row, site_);
}

void Checker::matrix_row_written(void* row, Site site_) {
  row_of_matrix<Access::matrix_row_written>(row, site_);
}

void Checker::range(const void* address, std::size_t bytes, std::size_t widest, Access access_,
                    std::uintptr_t site_key) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(address));
  copy_ = {at, bytes};
  while (bytes > 0) {
    std::size_t piece = widest;
    while (piece > bytes || reinterpret_cast<std::uintptr_t>(at) % piece != 0) piece /= 2;
    const std::uintptr_t key = site_key | std::uintptr_t{piece} << kPieceShift;
    const auto one = [&]<unsigned kBytes>() {
      switch (access_) {
        case Access::read:
          return access<kBytes, Access::read>(at, key);
        case Access::write:
          return access<kBytes, Access::write>(at, key);
        case Access::volatile_read:
          return access<kBytes, Access::volatile_read>(at, key);
        default:
          return access<kBytes, Access::volatile_write>(at, key);
      }
    };
    for_size<1, 2, 4, 8, 16>(piece, one);
    at += piece, bytes -= piece;
  }
  copy_ = {};
}

void Checker::tell_shared(unsigned rank, std::size_t offset, unsigned bytes, Access access_, Spot spot) const {
  const Outside outside;
  for (Observer* observer : worker_.observers) observer->shared_access(rank, offset, bytes, access_, spot);
}

void Checker::tell_global(std::size_t array, std::size_t offset, unsigned bytes, Access access_, Spot spot) const {
  const Outside outside;
  for (Observer* observer : worker_.observers) observer->global_access(array, offset, bytes, access_, spot);
}

bool Checker::is_built_in(const std::byte* at) const {
  for (const BuiltIn& variable : built_ins_)
    if (static_cast<std::size_t>(at - variable.begin) < variable.bytes) return true;
  return false;
}

// Neither device array, nor shared memory, nor the running thread's stack: built-in variables, kernel arguments and
// the program's constants may be read.
bool Checker::elsewhere(const void* address, Access access_) const {
  const auto* at = static_cast<const std::byte*>(address);
  if (is_built_in(at)) return true;
  if (is_write(access_)) return false;
  const auto* arguments = static_cast<const std::byte*>(worker_.launch->arguments);
  if (at >= arguments && at < arguments + worker_.launch->argument_bytes) return true;
  return static_cast<const void*>(at) >= &__ehdr_start && static_cast<const void*>(at) < &_end;
}

void* Checker::allocate(std::size_t bytes, const void* pc) {
  const std::string name = "memory of " + site_of(pc);
  const std::lock_guard lock(global_.mutex);
  return global_.memory.allocate_in_kernel(name, bytes);
}

void Checker::release(void* begin, const void* pc) {
  if (!begin) return;
  see_what_was_stored();
  const std::unique_lock lock(global_.mutex);
  global_.forget(begin);
  if (global_.memory.release_in_kernel(begin)) return;
  worker_.findings.add({"use after free",
                        "free of memory that no kernel holds",
                        "free what new or malloc gave, once",
                        {worker_.side("frees", pc)},
                        worker_.block});
}

}  // namespace flash::simt
