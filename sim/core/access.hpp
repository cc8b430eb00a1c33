// access.hpp: the kinds of memory accesses.
// Use: the checks judge accesses, counters count them, other observers are told of them (sim/core/observer.hpp).
#pragma once
#include <cstdint>

namespace flash::simt {

// Bits: 1 reads, 2 writes, 4 atomic, 8 volatile, 16 replaces a value whatever it is (atomicExch), 32 of a matrix, 64
// gives no value back.
enum class Access : std::uint8_t {
  read = 1,
  write = 2,
  atomic = 7,
  volatile_read = 9,
  volatile_write = 10,
  exchange = 23,
  matrix_row = 33,
  matrix_row_written = 34,
  reduction = 71
};
constexpr bool is_read(Access a) {
  return static_cast<unsigned>(a) & 1;
}
constexpr bool is_write(Access a) {
  return static_cast<unsigned>(a) & 2;
}
constexpr bool is_atomic(Access a) {
  return static_cast<unsigned>(a) & 4;
}
constexpr bool is_volatile(Access a) {
  return static_cast<unsigned>(a) & 8;
}
constexpr bool is_reduction(Access a) {
  return static_cast<unsigned>(a) & 64;
}
constexpr bool is_plain(Access a) {
  return !is_atomic(a) && !is_volatile(a);
}
constexpr bool needs_value(Access a) {
  return is_read(a) && !(static_cast<unsigned>(a) & 16);
}

}  // namespace flash::simt
