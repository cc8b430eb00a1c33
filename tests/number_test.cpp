// number_test.cpp: proof of sim/number.hpp: half and bfloat16 convert as IEEE 754 and CUDA do, bit by bit.
// Judged by the compiler's own type, where it has one, and by a rule of its own in exact fp64 arithmetic.
// ctest -L common
#include "sim/number.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>

using namespace flash;

namespace {

// What the 16 bits mean: sign, exponent and fraction as IEEE 754 writes them.
double meaning(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

// The nearest number of such a format to x, ties to even: found by rounding in units of the last place.
double nearest(double x, int exponent_bits, int fraction_bits) {
  if (x == 0 || std::isinf(x) || std::isnan(x)) return x;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(x), 1 - bias);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, fraction_bits - exponent)), exponent - fraction_bits);
  return std::abs(rounded) >= std::ldexp(1.0, bias + 1) ? std::copysign(INFINITY, x) : rounded;
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// Floats at which rounding can go wrong: every number of the format, halfway to the next, and one float to each side of
// both; all 2^19 upper halves of a float with the lower 13 bits at their extremes; and random ones.
template <class Check>
void at_hard_floats(int exponent_bits, int fraction_bits, const Check& check) {
  const auto around = [&](float x) {
    check(x);
    check(std::nextafterf(x, INFINITY));
    check(std::nextafterf(x, -INFINITY));
  };
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto here = meaning(static_cast<std::uint16_t>(bits), exponent_bits, fraction_bits);
    const auto next = meaning(static_cast<std::uint16_t>(bits + 1), exponent_bits, fraction_bits);
    around(static_cast<float>(here));
    if (!std::isinf(next) && !std::isinf(here)) around(static_cast<float>((here + next) / 2));
  }
  const float overflow =
      static_cast<float>(std::ldexp(2 - std::ldexp(1.0, -fraction_bits - 1), (1 << (exponent_bits - 1)) - 1));
  around(overflow);  // halfway between the largest number and the one that would follow: infinity
  around(-overflow);
  for (std::uint32_t upper = 0; upper < 1u << 19; ++upper)
    for (const std::uint32_t lower : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu})
      check(std::bit_cast<float>(upper << 13 | lower));
  std::mt19937 engine(1);
  for (int i = 0; i < 1 << 21; ++i) check(std::bit_cast<float>(static_cast<std::uint32_t>(engine())));
}

template <class T>
void check_all(int exponent_bits, int fraction_bits) {
  std::int64_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T x = T::of_bits(static_cast<std::uint16_t>(bits));
    wrong += !same(static_cast<double>(to_float(x)), meaning(x.bits, exponent_bits, fraction_bits));
    if (!std::isnan(to_float(x))) wrong += from_float<T>(to_float(x)).bits != x.bits;  // there and back
  }
  CHECK(wrong == 0);
  at_hard_floats(exponent_bits, fraction_bits, [&](float x) {
    const double got = meaning(from_float<T>(x).bits, exponent_bits, fraction_bits);
    wrong += !same(got, nearest(static_cast<double>(x), exponent_bits, fraction_bits));
  });
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("half: all 65536 numbers and the hard roundings") {
  check_all<half>(5, 10);
}

TEST_CASE("bfloat16: all 65536 numbers and the hard roundings") {
  check_all<bfloat16>(8, 7);
}

#if defined(__aarch64__)
using Compilers = __fp16;
#elif defined(__FLT16_MAX__)
using Compilers = _Float16;
#endif
#if defined(__aarch64__) || defined(__FLT16_MAX__)
TEST_CASE("half equals the compiler's own") {
  std::int64_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const half x = half::of_bits(static_cast<std::uint16_t>(bits));
    const float want = static_cast<float>(std::bit_cast<Compilers>(x.bits));
    wrong += !same(static_cast<double>(to_float(x)), static_cast<double>(want));
  }
  CHECK(wrong == 0);
  at_hard_floats(5, 10, [&](float x) {
    if (!std::isnan(x)) wrong += from_float<half>(x).bits != std::bit_cast<std::uint16_t>(static_cast<Compilers>(x));
  });
  CHECK(wrong == 0);
}
#endif

TEST_CASE("landmarks") {
  CHECK(from_float<half>(65504.0f).bits == 0x7bff);  // the largest
  CHECK(from_float<half>(65519.996f).bits == 0x7bff);
  CHECK(from_float<half>(65520.0f).bits == 0x7c00);  // rounds to infinity
  CHECK(from_float<half>(0x1p-24f).bits == 0x0001);  // the smallest
  CHECK(from_float<half>(0x1p-25f).bits == 0x0000);  // halfway: to even
  CHECK(from_float<half>(-0.0f).bits == 0x8000);
  CHECK(from_float<bfloat16>(1.0f).bits == 0x3f80);
  CHECK(from_float<bfloat16>(NAN).bits == 0x7fff);  // CUDA's canonical NaN
  CHECK(from_float<bfloat16>(3.4e38f).bits == 0x7f80);
  CHECK(std::isnan(to_float(from_float<half>(NAN))));
  CHECK(to_float(1.5) == 1.5f);
  CHECK(from_float<double>(1.5f) == 1.5);
  CHECK(sizeof(half) == 2);
  CHECK(sizeof(bfloat16) == 2);
}

// A number in their braces would be taken for bits.
template <class T, class Number>
concept takes = requires(Number x) {
  T{x};
}
|| requires(Number x) {
  T(x);
}
|| std::is_convertible_v<Number, T>;

TEST_CASE("no number becomes the bits of a half without a word") {
  CHECK(!takes<half, float>);
  CHECK(!takes<half, int>);
  CHECK(!takes<half, std::uint16_t>);
  CHECK(!takes<bfloat16, double>);
  CHECK(!takes<bfloat16, std::uint16_t>);
  CHECK(!std::is_aggregate_v<half>);
  CHECK(!std::is_aggregate_v<bfloat16>);
  CHECK(half::of_bits(0x3e00).bits == 0x3e00);
  CHECK(to_float(bfloat16::of_bits(0x3fc0)) == 1.5f);
  CHECK(std::is_trivially_copyable_v<half>);
  CHECK(std::is_trivially_default_constructible_v<bfloat16>);  // unions, shared memory
}

TEST_CASE("type names are NumPy's") {
  CHECK(std::string(type_name<half>()) == "float16");
  CHECK(std::string(type_name<bfloat16>()) == "bfloat16");
  CHECK(std::string(type_name<float>()) == "float32");
  CHECK(std::string(type_name<double>()) == "float64");
}
