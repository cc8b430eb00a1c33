// number.hpp: the 16-bit number types, half (IEEE binary16) and bfloat16, as the CPU machines see them.
// Stored as bits (2 bytes, the same layout as CUDA's __half and __nv_bfloat16); arithmetic is done in float.
// Conversions from float round to nearest even, as __float2half_rn and __float2bfloat16_rn do.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

// Does the compiler convert halfs by an instruction? Not where it would call a function, which is five times slower
// than the integer arithmetic below. ./flash check defines __CUDACC__, too.
#if !defined(__CUDACC__) || defined(FLASH_PROGRAM)
#if defined(__aarch64__)
#define FLASH_NATIVE_HALF __fp16  // g++ 12 has no _Float16 there
#elif defined(__FLT16_MAX__) && defined(__F16C__)
#define FLASH_NATIVE_HALF _Float16
#endif
#endif

namespace flash {

// Not aggregates: half{1} and half(1.5f) would take a number for bits. from_float<half>(1.5f) is the number,
// half::of_bits(0x3e00) the bits. Without an initialiser they have no value.
struct half {
  std::uint16_t bits;
  half() = default;
  [[gnu::always_inline]] static constexpr half of_bits(std::uint16_t b) { return __builtin_bit_cast(half, b); }
};

struct bfloat16 {
  std::uint16_t bits;
  bfloat16() = default;
  [[gnu::always_inline]] static constexpr bfloat16 of_bits(std::uint16_t b) { return __builtin_bit_cast(bfloat16, b); }
};

inline float to_float(float x) {
  return x;
}
inline float to_float(double x) {
  return static_cast<float>(x);
}

// binary16 -> binary32, exact; subnormals, infinities and NaN included.
inline float to_float(half x) {
#ifdef FLASH_NATIVE_HALF
  return static_cast<float>(std::bit_cast<FLASH_NATIVE_HALF>(x.bits));
#else
  const std::uint32_t sign = (x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Place exponent and fraction, then multiply by 2^112 to correct the bias: exact, and it normalises subnormals.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
#endif
}

inline float to_float(bfloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

template <class T>
T from_float(float x);

template <>
inline float from_float<float>(float x) {
  return x;
}

template <>
inline double from_float<double>(float x) {
  return x;
}

// binary32 -> binary16, round to nearest even; overflow gives infinity, NaN stays NaN.
template <>
inline half from_float<half>(float x) {
#ifdef FLASH_NATIVE_HALF
  return half::of_bits(std::bit_cast<std::uint16_t>(static_cast<FLASH_NATIVE_HALF>(x)));
#else
  const auto of = [](std::uint32_t bits) { return half::of_bits(static_cast<std::uint16_t>(bits)); };
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return of(sign | 0x7e00u | ((u >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return of(sign | 0x7c00u);
  if (magnitude < 0x38800000u)  // subnormal result: adding 0.5 aligns the last place to 2^-24 and rounds
    return of(sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u));
  return of(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
#endif
}

// binary32 -> bfloat16, round to nearest even; NaN gives CUDA's canonical 0x7fff.
template <>
inline bfloat16 from_float<bfloat16>(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bfloat16::of_bits(0x7fffu);
  return bfloat16::of_bits(static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16));
}

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, half>) return "float16";
  if constexpr (std::is_same_v<T, bfloat16>) return "bfloat16";
  if constexpr (std::is_same_v<T, float>) return "float32";
  return "float64";
}

}  // namespace flash
