// dialect_half.hpp: __half and __nv_bfloat16 with CUDA's intrinsics; operators work through the same functions.
// Each operation computes exactly enough in float (or double) and rounds once, to nearest even, as the GPU does.
// A NaN result is 0x7fff, as on the GPU. Use: through "gpu/kernel.cuh" only.
#pragma once
#include "sim/number.hpp"

namespace flash::inline FLASH_MACHINE {

using __half = flash::half;
using __nv_bfloat16 = flash::bfloat16;
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

// Widening is exact; the GPU turns a half NaN into the one canonical NaN, and keeps a bfloat16 NaN's bits.
FLASH_INLINE float half_to_float(__half x) {
  return (x.bits & 0x7fffu) > 0x7c00u ? __uint_as_float(0x7fffffffu) : flash::to_float(x);
}
FLASH_INLINE float half_to_float(__nv_bfloat16 x) { return flash::to_float(x); }
template <class H>
FLASH_INLINE H narrow(float x) {
  if (x != x) return H{0x7fff};
  return flash::from_float<H>(x);
}
// a*b+c with one rounding to H: the double sum is rounded to odd first, so that rounding it again is harmless.
template <class H>
FLASH_INLINE H fused(H a, H b, H c) {
  FLASH_COUNT(flops, 2);
  const double p = static_cast<double>(flash::to_float(a)) * flash::to_float(b), q = flash::to_float(c), s = p + q;
  const double shift = s - p, error = (p - (s - shift)) + (q - shift);
  auto to_odd = [](double value, double rest) {
    auto bits = std::bit_cast<std::uint64_t>(value);
    if (rest != 0 && !(bits & 1)) bits += (rest > 0) == (value > 0) ? 1 : -1;
    return std::bit_cast<double>(bits);
  };
  if (!(s - s == 0)) return narrow<H>(static_cast<float>(s));  // infinite or NaN
  const double odd = to_odd(s, error);
  const float f = static_cast<float>(odd);  // round this step to odd as well
  auto bits = std::bit_cast<std::uint32_t>(f);
  if (f - f == 0 && f != 0 && static_cast<double>(f) != odd && !(bits & 1))
    bits += (odd > static_cast<double>(f)) == (f > 0) ? 1 : -1;
  return narrow<H>(f - f == 0 ? std::bit_cast<float>(bits) : f);
}

#define FLASH_HALF(H, H2, to, from)                                                                             \
  FLASH_INLINE float to(H x) { return half_to_float(x); }                                                       \
  FLASH_INLINE H from(float x) { return narrow<H>(x); }                                                         \
  FLASH_INLINE H from##_rn(float x) { return narrow<H>(x); }                                                    \
  FLASH_INLINE H __hadd(H a, H b) { FLASH_COUNT(flops, 1); return narrow<H>(to(a) + to(b)); }                   \
  FLASH_INLINE H __hsub(H a, H b) { FLASH_COUNT(flops, 1); return narrow<H>(to(a) - to(b)); }                   \
  FLASH_INLINE H __hmul(H a, H b) { FLASH_COUNT(flops, 1); return narrow<H>(to(a) * to(b)); }                   \
  FLASH_INLINE H __hdiv(H a, H b) { return narrow<H>(to(a) / to(b)); }                                          \
  FLASH_INLINE H __hfma(H a, H b, H c) { return fused(a, b, c); }                                               \
  FLASH_INLINE H __hneg(H a) { return to(a) != to(a) ? H{0x7fff} : H{static_cast<std::uint16_t>(a.bits ^ 0x8000u)}; } \
  FLASH_INLINE H __habs(H a) { return to(a) != to(a) ? H{0x7fff} : H{static_cast<std::uint16_t>(a.bits & 0x7fffu)}; } \
  FLASH_INLINE H __hmax(H a, H b) { return narrow<H>(fmaxf(to(a), to(b))); }                                    \
  FLASH_INLINE H __hmin(H a, H b) { return narrow<H>(fminf(to(a), to(b))); }                                    \
  FLASH_INLINE bool __heq(H a, H b) { return to(a) == to(b); }                                                  \
  FLASH_INLINE bool __hne(H a, H b) { return to(a) < to(b) || to(a) > to(b); }                                  \
  FLASH_INLINE bool __hlt(H a, H b) { return to(a) < to(b); }                                                   \
  FLASH_INLINE bool __hle(H a, H b) { return to(a) <= to(b); }                                                  \
  FLASH_INLINE bool __hgt(H a, H b) { return to(a) > to(b); }                                                   \
  FLASH_INLINE bool __hge(H a, H b) { return to(a) >= to(b); }                                                  \
  FLASH_INLINE bool __hisnan(H a) { return to(a) != to(a); }                                                    \
  FLASH_INLINE H operator+(H a, H b) { return __hadd(a, b); }                                                   \
  FLASH_INLINE H operator-(H a, H b) { return __hsub(a, b); }                                                   \
  FLASH_INLINE H operator*(H a, H b) { return __hmul(a, b); }                                                   \
  FLASH_INLINE H operator/(H a, H b) { return __hdiv(a, b); }                                                   \
  FLASH_INLINE H operator-(H a) { return __hneg(a); }                                                           \
  FLASH_INLINE H& operator+=(H& a, H b) { return a = a + b; }                                                   \
  FLASH_INLINE H& operator-=(H& a, H b) { return a = a - b; }                                                   \
  FLASH_INLINE H& operator*=(H& a, H b) { return a = a * b; }                                                   \
  FLASH_INLINE bool operator==(H a, H b) { return __heq(a, b); }                                                \
  FLASH_INLINE bool operator<(H a, H b) { return __hlt(a, b); }                                                 \
  FLASH_INLINE bool operator<=(H a, H b) { return __hle(a, b); }                                                \
  FLASH_INLINE bool operator>(H a, H b) { return __hgt(a, b); }                                                 \
  FLASH_INLINE bool operator>=(H a, H b) { return __hge(a, b); }                                                \
  FLASH_INLINE H2 __hadd2(H2 a, H2 b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }                          \
  FLASH_INLINE H2 __hsub2(H2 a, H2 b) { return {__hsub(a.x, b.x), __hsub(a.y, b.y)}; }                          \
  FLASH_INLINE H2 __hmul2(H2 a, H2 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }                          \
  FLASH_INLINE H2 __hfma2(H2 a, H2 b, H2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }          \
  FLASH_INLINE H2 __hmax2(H2 a, H2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                          \
  FLASH_INLINE float __low2float(H2 v) { return to(v.x); }                                                      \
  FLASH_INLINE float __high2float(H2 v) { return to(v.y); }
FLASH_HALF(__half, __half2, __half2float, __float2half)
FLASH_HALF(__nv_bfloat16, __nv_bfloat162, __bfloat162float, __float2bfloat16)
#undef FLASH_HALF

FLASH_INLINE __half __low2half(__half2 v) { return v.x; }
FLASH_INLINE __half __high2half(__half2 v) { return v.y; }
FLASH_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
FLASH_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
FLASH_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
FLASH_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
FLASH_INLINE __half2 __half2half2(__half x) { return {x, x}; }
FLASH_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
FLASH_INLINE __half2 __floats2half2_rn(float x, float y) { return {__float2half(x), __float2half(y)}; }
FLASH_INLINE __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
FLASH_INLINE __half2 __float2half2_rn(float x) { return __floats2half2_rn(x, x); }
FLASH_INLINE float2 __half22float2(__half2 v) { return {__half2float(v.x), __half2float(v.y)}; }
FLASH_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16(x), __float2bfloat16(y)};
}
FLASH_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
FLASH_INLINE __nv_bfloat162 __float2bfloat162_rn(float x) { return __floats2bfloat162_rn(x, x); }
FLASH_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) { return {__bfloat162float(v.x), __bfloat162float(v.y)}; }
FLASH_INLINE unsigned short __half_as_ushort(__half x) { return x.bits; }
FLASH_INLINE __half __ushort_as_half(unsigned short x) { return {x}; }
FLASH_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
FLASH_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return {x}; }

}  // namespace flash::inline FLASH_MACHINE

#if defined(FLASH_PROGRAM)
// Functions of a half are found with their argument's namespace; these have none.
using flash::__bfloat162bfloat162, flash::__float22bfloat162_rn, flash::__float2bfloat16, flash::__float2bfloat162_rn;
using flash::__float2bfloat16_rn, flash::__floats2bfloat162_rn, flash::__ushort_as_bfloat16;
using flash::__float22half2_rn, flash::__float2half, flash::__float2half2_rn, flash::__float2half_rn;
using flash::__floats2half2_rn, flash::__ushort_as_half;
using flash::__half, flash::__half2, flash::__nv_bfloat16, flash::__nv_bfloat162;
using half = flash::__half;
using half2 = flash::__half2;
using nv_bfloat16 = flash::__nv_bfloat16;
using nv_bfloat162 = flash::__nv_bfloat162;
#endif
