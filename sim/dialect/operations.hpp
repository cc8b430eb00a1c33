// operations.hpp: what CUDA's words are made of here and CUDA has no name for: operands as bits, atomic steps.
// In this machine's inline namespace and inlined, as the dialect itself.
// Use: dialect.hpp includes it.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "sim/core/members.hpp"
#include "sim/core/padding.hpp"
#include "sim/core/simt.hpp"

#define FLASH_INLINE [[gnu::always_inline]] inline

namespace flash::inline FLASH_MACHINE {

// The operand as 64 bits and back.
template <class T>
FLASH_INLINE std::uint64_t to_word(T value) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8),
                "warp operations exchange values of 2, 4 or 8 bytes");
  if constexpr (sizeof(T) == 2) return __builtin_bit_cast(std::uint16_t, value);
  if constexpr (sizeof(T) == 4) return __builtin_bit_cast(std::uint32_t, value);
  if constexpr (sizeof(T) == 8) return __builtin_bit_cast(std::uint64_t, value);
}
template <class T>
FLASH_INLINE T from_word(std::uint64_t word) {
  if constexpr (sizeof(T) == 2) return __builtin_bit_cast(T, static_cast<std::uint16_t>(word));
  if constexpr (sizeof(T) == 4) return __builtin_bit_cast(T, static_cast<std::uint32_t>(word));
  if constexpr (sizeof(T) == 8) return __builtin_bit_cast(T, word);
}

// A NaN operand gives the other one; +0 is above -0, as on the GPU.
FLASH_INLINE float larger(float a, float b) {
  if (a == b) return std::bit_cast<float>(std::bit_cast<int>(a) & std::bit_cast<int>(b));
  return a > b || b != b ? a : b;
}
FLASH_INLINE float smaller(float a, float b) {
  if (a == b) return std::bit_cast<float>(std::bit_cast<int>(a) | std::bit_cast<int>(b));
  return a < b || b != b ? a : b;
}

// Replaces *p by change(*p) in one step and gives the old value. Out of line without instrumentation in the checked
// build: there the simulator is told once, as one atomic access.
template <class T, class Change>
#if defined(FLASH_CHECKED)
__attribute__((noinline, no_sanitize("thread")))
#else
FLASH_INLINE
#endif
T exchange_with(T* p, Change change) {
  return flash::simt::replace(p, change);
}
// What atomicAdd leaves at p, where a was. Of fp32 an H200 gives (docs/results/conformance-wgmma-h200.txt, families
// add_…): in global memory subnormal numbers count as zeros of their sign, addends and sum alike; in shared memory they
// do not; any NaN is 0x7fffffff. Copies that reduce in bulk keep subnormal numbers in global memory, too.
template <class T>
FLASH_INLINE T atomic_sum(const T*, T a, T b) {
  return static_cast<T>(a + b);
}
FLASH_INLINE float atomic_sum(const float* p, float a, float b) {
  const auto is_subnormal = [](float x) { return x != 0 && __builtin_fabsf(x) < 0x1p-126f; };
  const float sum = a + b;
  if (sum != sum) [[unlikely]]
    return std::bit_cast<float>(0x7fffffff);
  if (is_subnormal(a) || is_subnormal(b) || is_subnormal(sum)) [[unlikely]] {
    if (flash::simt::is_shared(p)) return sum;
    const auto flushed = [&](float x) { return is_subnormal(x) ? __builtin_copysignf(0.0f, x) : x; };
    return flushed(flushed(a) + flushed(b));
  }
  return sum;
}
// The operand's type follows from the address, as with CUDA's overloads.
template <class T>
struct Same {
  using type = T;
};
template <class T>
using same_t = typename Same<T>::type;
// The bytes of each floating-point number that a sum of two T adds up; 0: it is one of integers, exact in any order.
template <class T>
consteval unsigned added_bytes() {
  if constexpr (std::is_integral_v<T>) return 0;
  if constexpr (requires(T v) { v.y; }) return sizeof(T::x);  // of half2
  return sizeof(T);
}
// `adds`: added_bytes() of an addition; 0 of all else.
template <class T, class Change>
FLASH_INLINE T atomic_step(T* p, Change change, simt::Scope scope, simt::Site site, bool reads,
                           [[maybe_unused]] unsigned adds = 0) {
  flash::simt::before_atomic(p, sizeof(T), reads, scope, site);
#if defined(FLASH_CHECKED)
  if (adds) flash::simt::adds(p, sizeof(T), adds, site);
#endif
  const T old = exchange_with(p, change);
#if defined(FLASH_CHECKED)
  flash::simt::after_atomic(p);
#endif
  return old;
}
// An addition to a vector of floats: one request, each element an atomic of its own.
FLASH_INLINE void begin_vector_add(void* p, unsigned bytes, simt::Site site) {
  flash::simt::before_atomic(p, bytes, true, flash::simt::Scope::device, site);
#if defined(FLASH_CHECKED)
  flash::simt::adds(p, bytes, sizeof(float), site);
#endif
}
FLASH_INLINE float add_in_vector(float* p, float v) {
  return exchange_with(p, [p, v](float old) { return atomic_sum(p, old, v); });
}
FLASH_INLINE void end_vector_add([[maybe_unused]] void* p) {
#if defined(FLASH_CHECKED)
  flash::simt::after_atomic(p);
#endif
}

// The block's shared memory, of which the launch gives sizeof(S) bytes or more, as a struct. Findings name the struct.
template <class S>
FLASH_INLINE S& shared() {
  static_assert(std::is_trivially_copyable_v<S> && alignof(S) <= 1024);
  const flash::simt::Padding padding = flash::simt::padding_of<S>();
  return *reinterpret_cast<S*>(
      flash::simt::shared_memory(sizeof(S), __PRETTY_FUNCTION__, padding, flash::simt::members_of<S>()));
}

// Begins a named region of this warp in the trace; nothing on the GPU. `label` is a string literal.
FLASH_INLINE void trace_mark(const char* label, long value = 0) {
  flash::simt::mark(label, value);
}
// Shows a number, of this row for instance, in the recording that the player plays; nothing where there is none: on the
// fast machine and on the GPU. `name` is a string literal.
#if defined(FLASH_CHECKED)
FLASH_INLINE void trace_value(const char* name, long row, float value) {
  flash::simt::show(name, row, value);
}
#else
FLASH_INLINE void trace_value(const char*, long, float) {}
#endif

}  // namespace flash::inline FLASH_MACHINE
