// dialect_numbers.hpp: integer intrinsics, arithmetic with a rounding of one's own (__fmaf_rz), conversions of numbers.
// Directed rounding: the result to nearest and the sign of what it misses decide; the processor's mode is left alone.
// Use: through "gpu/kernel.cuh" or <cuda_runtime.h> only.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "sim/dialect/operations.hpp"
#include "sim/dialect/tally.hpp"

namespace flash::inline FLASH_MACHINE {

enum class Rounding { nearest, to_zero, up, down };

// `nearest` is a neighbour of an exact value, which lies above it (rest > 0), below, or there.
template <class T, class Rest>
FLASH_INLINE T rounded(T nearest, Rest rest, Rounding to) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  if (rest == 0 || rest != rest || to == Rounding::nearest) return nearest;
  const bool zero_side = (rest < 0) == (nearest > 0 || (nearest == 0 && rest < 0));
  if (to == Rounding::up) return rest > 0 ? std::nextafter(nearest, kInfinity) : nearest;
  if (to == Rounding::down) return rest < 0 ? std::nextafter(nearest, -kInfinity) : nearest;
  return nearest != 0 && zero_side ? std::nextafter(nearest, T{0}) : nearest;
}
// A number that a wider type holds exactly.
template <class T, class Wide>
FLASH_INLINE T narrowed(Wide exact, Rounding to) {
  const T nearest = static_cast<T>(exact);
  return exact - exact == 0 ? rounded(nearest, exact - static_cast<Wide>(nearest), to) : nearest;
}
// p + c, where both are doubles; the sum's rest is exact as long as nothing overflows.
template <class T>
FLASH_INLINE T sum(double p, double c, Rounding to) {
  const double s = p + c, shift = s - p, rest = (p - (s - shift)) + (c - shift);
  if (s == 0 && rest == 0 && to == Rounding::down) return std::signbit(p) || std::signbit(c) ? T(-0.0) : T(0);
  const T nearest = static_cast<T>(s);
  if (!(s - s == 0)) return nearest;
  const double gap = s - static_cast<double>(nearest);
  return rounded(nearest, gap != 0 ? gap : rest, to);
}
template <class T>
FLASH_INLINE T quotient(T a, T b, Rounding to) {
  if constexpr (sizeof(T) == 4) {
    const double q = static_cast<double>(a) / b;
    const float nearest = a / b;
    if (!(q - q == 0) || b - b != 0) return nearest;
    const double gap = q - static_cast<double>(nearest), rest = std::fma(-q, static_cast<double>(b), a);
    return rounded(nearest, gap != 0 ? gap : b > 0 ? rest : -rest, to);
  } else {
    const T q = a / b;
    if (!(q - q == 0) || b - b != 0) return q;
    const T rest = std::fma(-q, b, a);
    return rounded(q, b > 0 ? rest : -rest, to);
  }
}
template <class T>
FLASH_INLINE T root(T a, Rounding to) {
  const T q = std::sqrt(a);
  if (!(q - q == 0)) return q;
  if constexpr (sizeof(T) == 4)
    return rounded(q, static_cast<double>(a) - static_cast<double>(q) * q, to);
  else
    return rounded(q, std::fma(-q, q, a), to);
}

// To integers: saturating, and NaN gives 0 (of 64 bits: the lowest, as the GPU has it), as on the GPU.
template <class T, class F>
FLASH_INLINE T to_integer(F x, Rounding to) {
  using Limits = std::numeric_limits<T>;
  if (x != x) return sizeof(T) == 8 ? static_cast<T>(std::uint64_t{1} << 63) : T{0};
  x = to == Rounding::nearest ? std::nearbyint(x) : to == Rounding::up ? std::ceil(x)
      : to == Rounding::down  ? std::floor(x) : std::trunc(x);
  if (x >= static_cast<F>(Limits::max())) return static_cast<double>(x) >= static_cast<double>(Limits::max())
                                                     ? Limits::max() : static_cast<T>(x);
  return x <= static_cast<F>(Limits::min()) ? Limits::min() : static_cast<T>(x);
}

}  // namespace flash::inline FLASH_MACHINE

FLASH_WORDS

// ---- arithmetic, four roundings -------------------------------------------------------------------------------------

#define FLASH_ROUNDED(suffix, mode)                                                                             \
  FLASH_INLINE float __fadd_##suffix(float a, float b) {                                                        \
    FLASH_COUNT(flops, 1);                                                                                      \
    return flash::sum<float>(a, b, flash::Rounding::mode);                                                      \
  }                                                                                                             \
  FLASH_INLINE float __fsub_##suffix(float a, float b) {                                                        \
    FLASH_COUNT(flops, 1);                                                                                      \
    return flash::sum<float>(a, -static_cast<double>(b), flash::Rounding::mode);                                \
  }                                                                                                             \
  FLASH_INLINE float __fmul_##suffix(float a, float b) {                                                        \
    FLASH_COUNT(flops, 1);                                                                                      \
    return flash::narrowed<float>(static_cast<double>(a) * b, flash::Rounding::mode);                           \
  }                                                                                                             \
  FLASH_INLINE float __fdiv_##suffix(float a, float b) { return flash::quotient(a, b, flash::Rounding::mode); } \
  FLASH_INLINE float __frcp_##suffix(float a) { return flash::quotient(1.0f, a, flash::Rounding::mode); }       \
  FLASH_INLINE float __fsqrt_##suffix(float a) { return flash::root(a, flash::Rounding::mode); }                \
  FLASH_INLINE double __dadd_##suffix(double a, double b) {                                                     \
    FLASH_COUNT(flops, 1);                                                                                      \
    return flash::sum<double>(a, b, flash::Rounding::mode);                                                     \
  }                                                                                                             \
  FLASH_INLINE double __dsub_##suffix(double a, double b) {                                                     \
    FLASH_COUNT(flops, 1);                                                                                      \
    return flash::sum<double>(a, -b, flash::Rounding::mode);                                                    \
  }                                                                                                             \
  FLASH_INLINE double __dmul_##suffix(double a, double b) {                                                     \
    FLASH_COUNT(flops, 1);                                                                                      \
    const double p = a * b;                                                                                     \
    return p - p == 0 ? flash::rounded(p, __builtin_fma(a, b, -p), flash::Rounding::mode) : p;                  \
  }                                                                                                             \
  FLASH_INLINE double __ddiv_##suffix(double a, double b) { return flash::quotient(a, b, flash::Rounding::mode); } \
  FLASH_INLINE double __drcp_##suffix(double a) { return flash::quotient(1.0, a, flash::Rounding::mode); }      \
  FLASH_INLINE double __dsqrt_##suffix(double a) { return flash::root(a, flash::Rounding::mode); }              \
  FLASH_INLINE float __double2float_##suffix(double x) { return flash::narrowed<float>(x, flash::Rounding::mode); } \
  FLASH_INLINE float __int2float_##suffix(int x) { return flash::narrowed<float>(double(x), flash::Rounding::mode); } \
  FLASH_INLINE float __uint2float_##suffix(unsigned x) {                                                        \
    return flash::narrowed<float>(double(x), flash::Rounding::mode);                                            \
  }                                                                                                             \
  FLASH_INLINE float __ll2float_##suffix(long long x) {                                                         \
    return flash::narrowed<float>(static_cast<long double>(x), flash::Rounding::mode);                          \
  }                                                                                                             \
  FLASH_INLINE float __ull2float_##suffix(unsigned long long x) {                                               \
    return flash::narrowed<float>(static_cast<long double>(x), flash::Rounding::mode);                          \
  }                                                                                                             \
  FLASH_INLINE double __ll2double_##suffix(long long x) {                                                       \
    return flash::narrowed<double>(static_cast<long double>(x), flash::Rounding::mode);                         \
  }                                                                                                             \
  FLASH_INLINE double __ull2double_##suffix(unsigned long long x) {                                             \
    return flash::narrowed<double>(static_cast<long double>(x), flash::Rounding::mode);                         \
  }                                                                                                             \
  FLASH_TO_INTEGER(float, float, suffix, mode)                                                                  \
  FLASH_TO_INTEGER(double, double, suffix, mode)
#define FLASH_TO_INTEGER(F, name, suffix, mode)                                                                 \
  FLASH_INLINE int __##name##2int_##suffix(F x) { return flash::to_integer<int>(x, flash::Rounding::mode); }    \
  FLASH_INLINE unsigned __##name##2uint_##suffix(F x) {                                                         \
    return flash::to_integer<unsigned>(x, flash::Rounding::mode);                                               \
  }                                                                                                             \
  FLASH_INLINE long long __##name##2ll_##suffix(F x) {                                                          \
    return flash::to_integer<long long>(x, flash::Rounding::mode);                                              \
  }                                                                                                             \
  FLASH_INLINE unsigned long long __##name##2ull_##suffix(F x) {                                                \
    return flash::to_integer<unsigned long long>(x, flash::Rounding::mode);                                     \
  }
FLASH_ROUNDED(rn, nearest)
FLASH_ROUNDED(rz, to_zero)
FLASH_ROUNDED(ru, up)
FLASH_ROUNDED(rd, down)
#undef FLASH_TO_INTEGER
#undef FLASH_ROUNDED
FLASH_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
#define FLASH_FMA(suffix, mode)                                                                                 \
  FLASH_INLINE float __fmaf_##suffix(float a, float b, float c) {                                               \
    FLASH_COUNT(flops, 2);                                                                                      \
    return flash::sum<float>(static_cast<double>(a) * b, c, flash::Rounding::mode);                             \
  }
FLASH_FMA(rz, to_zero)
FLASH_FMA(ru, up)
FLASH_FMA(rd, down)
#undef FLASH_FMA
FLASH_INLINE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
FLASH_INLINE float __frsqrt_rn(float a) { return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(a))); }
FLASH_INLINE double __int2double_rn(int x) { return x; }
FLASH_INLINE double __uint2double_rn(unsigned x) { return x; }
FLASH_INLINE int __double2hiint(double x) { return static_cast<int>(__builtin_bit_cast(std::uint64_t, x) >> 32); }
FLASH_INLINE int __double2loint(double x) { return static_cast<int>(__builtin_bit_cast(std::uint64_t, x)); }
FLASH_INLINE double __hiloint2double(int high, int low) {
  return __builtin_bit_cast(double, std::uint64_t{static_cast<unsigned>(high)} << 32 | static_cast<unsigned>(low));
}

// ---- integers -----------------------------------------------------------------------------------------------------

FLASH_INLINE int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
FLASH_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
FLASH_INLINE long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
FLASH_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
// The product of the low 24 bits, its low 32 bits.
FLASH_INLINE int __mul24(int a, int b) {
  const auto low = [](int x) { return static_cast<int>(static_cast<unsigned>(x) << 8) >> 8; };
  return static_cast<int>(static_cast<long long>(low(a)) * low(b));
}
FLASH_INLINE unsigned __umul24(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a & 0xffffffu) * (b & 0xffffffu));
}
FLASH_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
FLASH_INLINE unsigned __sad(int a, int b, unsigned c) {
  return (a > b ? static_cast<unsigned>(a) - static_cast<unsigned>(b)
                : static_cast<unsigned>(b) - static_cast<unsigned>(a)) + c;
}
// Means, rounded down and up.
FLASH_INLINE int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
FLASH_INLINE int __rhadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1); }
FLASH_INLINE unsigned __uhadd(unsigned a, unsigned b) { return static_cast<unsigned>((a + std::uint64_t{b}) >> 1); }
FLASH_INLINE unsigned __urhadd(unsigned a, unsigned b) {
  return static_cast<unsigned>((a + std::uint64_t{b} + 1) >> 1);
}
// Each byte of the result is chosen among the eight of b:a by three bits of s.
FLASH_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(both >> (s >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}
// high:low shifted left (its high word) or right (its low word) by shift mod 32; _lc, _rc: by 32 at most.
FLASH_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
FLASH_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
FLASH_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
FLASH_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
// The sum of four products of bytes, and c.
#define FLASH_DP4A(Result, Byte, Word)                                                                          \
  FLASH_INLINE Result __dp4a(Word a, Word b, Result c) {                                                        \
    unsigned sum = static_cast<unsigned>(c);                                                                    \
    for (int i = 0; i < 32; i += 8)                                                                             \
      sum += static_cast<unsigned>(static_cast<Byte>(a >> i) * static_cast<Byte>(b >> i));                      \
    return static_cast<Result>(sum);                                                                            \
  }
FLASH_DP4A(int, signed char, int)
FLASH_DP4A(unsigned, unsigned char, unsigned)
#undef FLASH_DP4A
FLASH_INLINE int __vimax3_s32(int a, int b, int c) { return max(max(a, b), c); }
FLASH_INLINE int __vimin3_s32(int a, int b, int c) { return min(min(a, b), c); }
FLASH_INLINE unsigned __vimax3_u32(unsigned a, unsigned b, unsigned c) { return max(max(a, b), c); }
FLASH_INLINE unsigned __vimin3_u32(unsigned a, unsigned b, unsigned c) { return min(min(a, b), c); }
FLASH_INLINE int __dp4a(char4 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
FLASH_INLINE unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return c + static_cast<unsigned>(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w);
}
using ::__dp2a_hi, ::__dp2a_lo;  // of words: sim/core/packed.hpp
FLASH_INLINE int __dp2a_lo(short2 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y; }
FLASH_INLINE int __dp2a_hi(short2 a, char4 b, int c) { return c + a.x * b.z + a.y * b.w; }
FLASH_INLINE unsigned __dp2a_lo(ushort2 a, uchar4 b, unsigned c) {
  return c + static_cast<unsigned>(a.x * b.x + a.y * b.y);
}
FLASH_INLINE unsigned __dp2a_hi(ushort2 a, uchar4 b, unsigned c) {
  return c + static_cast<unsigned>(a.x * b.z + a.y * b.w);
}
FLASH_INLINE unsigned long long __brevll(unsigned long long x) {
  return std::uint64_t{__brev(static_cast<unsigned>(x))} << 32 | __brev(static_cast<unsigned>(x >> 32));
}

FLASH_WORDS_END
