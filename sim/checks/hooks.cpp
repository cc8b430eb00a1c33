// hooks.cpp: the functions that g++ -fsanitize=thread calls at each memory access, given a meaning of our own.
// The compiler's run-time is never linked. Outside of a kernel active_worker is null and a hook does nothing.
// Names and signatures are the compiler's (libsanitizer/tsan/tsan_interface.h). Use: linked with checked kernels.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "sim/checks/accesses.hpp"
#include "sim/core/block.hpp"
#include "sim/core/outside.hpp"

namespace {

using flash::simt::Access;
using flash::simt::active_worker;
using flash::simt::Checker;
using flash::simt::Outside;
using flash::simt::Worker;

// The machine gives each worker that runs checked kernels a Checker.
[[gnu::always_inline]] inline Checker* checker(Worker* worker) {
  return static_cast<Checker*>(worker->checks.get());
}

// An access of a block that is not in the sample: a plain one, or one to its own shared memory, which nobody else sees.
[[gnu::always_inline]] inline bool is_unwatched(Worker* worker, const void* address, Access access) {
  flash::simt::DeviceMemory* const memory = flash::simt::unwatched_memory;
  if (!memory) return false;
  if (!is_plain(access)) return worker->in_shared(address);
  if (is_write(access) && memory->contains(address)) flash::simt::writes_unwatched(*memory, address);
  return true;
}

// Out of line, so that the quick path below needs no stack frame. What it keeps books in must not be left half written
// when the launch is stopped: outside of the kernel nobody stops it.
template <unsigned kBytes, Access kAccess>
[[gnu::noinline]] void accessed_slowly(void* address, std::uintptr_t pc) {
  Checker* const checks = checker(active_worker);
  const Outside outside;
  // The compiler takes a struct of 16 bytes that needs a multiple of 8 for a whole, too.
  if (kBytes == 16 && reinterpret_cast<std::uintptr_t>(address) % 16 == 8)
    return checks->range(address, kBytes, 8, kAccess, pc);
  checks->access<kBytes, kAccess>(address, pc);
}

// A volatile load may be one of a loop that waits: others run now and then. A volatile store is what they wait for.
void waits(Access access, std::uintptr_t pc) {
  if (access == Access::volatile_write) flash::simt::memory_changed = true;
  if (access != Access::volatile_read) return;
  const Outside outside;
  outside.worker()->before_volatile_read(reinterpret_cast<const void*>(pc));
}

[[gnu::always_inline]] inline void accessed_by_host(const void* address, Access access, std::uintptr_t pc) {
  const flash::simt::DeviceMemory* const memory = flash::simt::host_watched;
  if (memory && memory->contains(address)) [[unlikely]]
    flash::simt::host_accessed(address, flash::simt::is_write(access), reinterpret_cast<const void*>(pc));
}

template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline void accessed(void* address, std::uintptr_t pc) {
  Worker* const worker = active_worker;
  if (!worker) return accessed_by_host(address, kAccess, pc);
  if constexpr (is_volatile(kAccess)) waits(kAccess, pc);
  if (is_unwatched(worker, address, kAccess)) return;
  if (checker(worker)->quick<kBytes, kAccess>(address, pc)) return;
  if (is_plain(kAccess) && checker(worker)->quick_on_stack(address, kBytes, kAccess, pc)) return;
  accessed_slowly<kBytes, kAccess>(address, pc);
}

template <unsigned kBytes>
[[gnu::noinline]] void read_unexpected(void* address, std::uintptr_t pc) {
  accessed<kBytes, Access::read>(address, pc);
}

// A read that was expected has been counted, and there is nothing to find (Checker::foresee).
template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline void hook(void* address, std::uintptr_t pc) {
  if constexpr (kAccess != Access::read) return accessed<kBytes, kAccess>(address, pc);
  flash::simt::SiteCache* const sites = flash::simt::running_sites;
  flash::simt::CachedSite& site = (*sites)[pc];
  if (site.key != pc || site.expected != reinterpret_cast<std::uintptr_t>(address) || site.left == 0) [[unlikely]] {
    if (sites == &flash::simt::no_sites) {  // the host computes, or a sample is checked: most reads end here
      if (flash::simt::unwatched_memory) return;
      if (!active_worker) return accessed_by_host(address, kAccess, pc);
    }
    return read_unexpected<kBytes>(address, pc);
  }
  site.expected += static_cast<std::uintptr_t>(std::int64_t{site.step});
  --site.left;
}

void moved(const void* address, std::size_t bytes, Access access, void* return_address) {
  Worker* const worker = active_worker;
  if (!worker) return;
  if (is_unwatched(worker, address, access)) return;
  const Outside outside;
  checker(worker)->range(address, bytes, 16, access, reinterpret_cast<std::uintptr_t>(return_address));
}

// A struct, which a GPU moves in pieces. Its alignment is not told, but it divides the size, and is less than it here
// (where it equals the size, the compiler calls the plain hook).
void copied(const void* address, std::size_t bytes, Access access, void* return_address) {
  Worker* const worker = active_worker;
  if (!worker || bytes == 0) return;
  const auto pc = reinterpret_cast<std::uintptr_t>(return_address);
  const std::size_t divisor = bytes & -bytes, widest = divisor == bytes ? bytes / 2 : divisor;
  if (is_volatile(access)) waits(access, pc);
  if (is_unwatched(worker, address, access)) return;
  const Outside outside;
  checker(worker)->range(address, bytes, std::clamp<std::size_t>(widest, 1, 16), access, pc);
}

}  // namespace

#define FLASH_HOOK(name, bytes, kind)                                                                  \
  void __tsan_##name##bytes(void* address) {                                                           \
    hook<bytes, Access::kind>(address, reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))); \
  }
// "Unaligned" means that the type promises less than the size: a small struct.
#define FLASH_PIECES(name, bytes, kind)                                \
  void __tsan_##name##bytes(void* address) {                           \
    copied(address, bytes, Access::kind, __builtin_return_address(0)); \
  }
// A volatile access is a relaxed atomic: no race with atomics and other volatile accesses, no order.
#define FLASH_HOOKS(bytes)                                    \
  FLASH_HOOK(read, bytes, read)                               \
  FLASH_HOOK(write, bytes, write)                             \
  FLASH_HOOK(volatile_read, bytes, volatile_read)             \
  FLASH_HOOK(volatile_write, bytes, volatile_write)           \
  FLASH_PIECES(unaligned_read, bytes, read)                   \
  FLASH_PIECES(unaligned_write, bytes, write)                 \
  FLASH_PIECES(unaligned_volatile_read, bytes, volatile_read) \
  FLASH_PIECES(unaligned_volatile_write, bytes, volatile_write)

// Host code in kernel files (a reference count, the guard of a local static) may use std::atomic; kernels may not.
#define FLASH_ATOMICS(bits, T)                                                              \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                  \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                            \
  }                                                                                         \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                               \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                               \
  }                                                                                         \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                               \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                     \
  }                                                                                         \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) {                              \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                      \
  }                                                                                         \
  T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int) {                              \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                      \
  }                                                                                         \
  T __tsan_atomic##bits##_fetch_and(volatile T* p, T v, int) {                              \
    return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                      \
  }                                                                                         \
  T __tsan_atomic##bits##_fetch_or(volatile T* p, T v, int) {                               \
    return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                       \
  }                                                                                         \
  T __tsan_atomic##bits##_fetch_xor(volatile T* p, T v, int) {                              \
    return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                                      \
  }                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* c, T v, int, int) {   \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* c, T v, int, int) {     \
    return __atomic_compare_exchange_n(p, c, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }

// What -fsanitize=alignment hands over (libsanitizer/ubsan/ubsan_handlers.h): where, and the type that was promised.
struct TypeMismatch {
  const char* file;
  std::uint32_t line, column;
  const struct {
    std::uint16_t kind, info;
    char name[1];  // 'float4'
  } * type;
  unsigned char log_alignment, check;
};

extern "C" {
// A load or store of a number is judged by its own hook; this one is for structs and their members.
void __ubsan_handle_type_mismatch_v1(const TypeMismatch* data, const void* address) {
  constexpr unsigned char kLoad = 0, kStore = 1;
  Worker* const worker = active_worker;
  if (!worker || data->check == kLoad || data->check == kStore) return;
  checker(worker)->misaligned(address, data->type->name, 1u << data->log_alignment,
                              reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

FLASH_HOOKS(1)
FLASH_HOOKS(2)
FLASH_HOOKS(4)
FLASH_HOOKS(8)
FLASH_HOOKS(16)

// Copies of structs whose size is not a power of two.
void __tsan_read_range(void* address, std::size_t bytes) {
  copied(address, bytes, Access::read, __builtin_return_address(0));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  copied(address, bytes, Access::write, __builtin_return_address(0));
}

// memcpy and memset of kernels (sim/dialect/dialect_memory.hpp).
void* flash_memcpy(void* to, const void* from, std::size_t bytes) noexcept {
  moved(from, bytes, Access::read, __builtin_return_address(0));
  moved(to, bytes, Access::write, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* flash_memmove(void* to, const void* from, std::size_t bytes) noexcept {
  moved(from, bytes, Access::read, __builtin_return_address(0));
  moved(to, bytes, Access::write, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* flash_memset(void* to, int value, std::size_t bytes) noexcept {
  moved(to, bytes, Access::write, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

// The heap of kernels. Host code of kernel files comes here as well, and gets the host's.
void* flash_malloc(std::size_t bytes) noexcept {
  const Outside outside;
  if (Worker* const worker = outside.worker()) return checker(worker)->allocate(bytes, __builtin_return_address(0));
  return std::malloc(bytes);
}
void flash_free(void* memory) noexcept {
  const Outside outside;
  if (Worker* const worker = outside.worker()) return checker(worker)->release(memory, __builtin_return_address(0));
  std::free(memory);
}
void* flash_new(std::size_t bytes) {
  const Outside outside;
  if (Worker* const worker = outside.worker()) return checker(worker)->allocate(bytes, __builtin_return_address(0));
  return ::operator new(bytes);
}
void flash_delete(void* memory) noexcept {
  const Outside outside;
  if (Worker* const worker = outside.worker()) return checker(worker)->release(memory, __builtin_return_address(0));
  ::operator delete(memory);
}

FLASH_ATOMICS(8, std::uint8_t)
FLASH_ATOMICS(16, std::uint16_t)
FLASH_ATOMICS(32, std::uint32_t)
FLASH_ATOMICS(64, std::uint64_t)
}
