// dialect_half.hpp: __half and __nv_bfloat16 with CUDA's intrinsics; operators work through the same functions.
// Each operation computes exactly enough in float (or double) and rounds once, to nearest even, as the GPU does.
// A NaN result is 0x7fff, as on the GPU. Use: through "gpu/kernel.cuh" only.
#pragma once
#include "sim/number.hpp"

namespace flash::inline FLASH_MACHINE {

// The type on the host with the same bits: number.hpp converts it.
template <class H>
struct HostType;
template <class H>
using host_t = typename HostType<H>::type;

// A value of these bits.
template <class H>
FLASH_INLINE H half_of(unsigned bits) {
  H value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}
template <class H>
FLASH_INLINE H narrow(float x) {
  return half_of<H>(x != x ? 0x7fffu : flash::from_float<host_t<H>>(x).bits);
}
// The nearest float whose last bit is odd where it is not exact, so that rounding it again is harmless.
FLASH_INLINE float to_odd(double x) {
  const float f = static_cast<float>(x);
  auto bits = std::bit_cast<std::uint32_t>(f);
  if (!(f - f == 0) || static_cast<double>(f) == x || (bits & 1)) return f;
  if (f == 0) return x > 0 ? 0x1p-149f : -0x1p-149f;
  bits += (x > static_cast<double>(f)) == (f > 0) ? 1 : -1;
  return std::bit_cast<float>(bits);
}

// Bits under CUDA's name: an aggregate, as there.
struct alignas(2) __half_raw {
  unsigned short x;
};
struct alignas(2) __nv_bfloat16_raw {
  unsigned short x;
};

// As in CUDA: numbers become halfs, and halfs numbers, without a word; what an integer cannot hold becomes its limit.
// Without an initialiser it has no value, as fits unions and shared memory.
template <class Host, class Raw>
struct alignas(2) Narrow {
  std::uint16_t bits;
  Narrow() = default;
  FLASH_INLINE constexpr Narrow(const Raw& raw) : bits(raw.x) {}
  FLASH_INLINE Narrow(float x) : bits(narrow<Narrow>(x).bits) {}
  FLASH_INLINE Narrow(double x) : bits(narrow<Narrow>(flash::to_odd(x)).bits) {}
  template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
  FLASH_INLINE Narrow(Integer x) : Narrow(static_cast<double>(x)) {}
#define FLASH_FROM(Number) FLASH_INLINE Narrow& operator=(Number x) { return *this = Narrow(x); }
  FLASH_FROM(float) FLASH_FROM(double) FLASH_FROM(short) FLASH_FROM(unsigned short) FLASH_FROM(int)
  FLASH_FROM(unsigned) FLASH_FROM(long long) FLASH_FROM(unsigned long long)
#undef FLASH_FROM
  FLASH_INLINE volatile Narrow& operator=(const Raw& raw) volatile { bits = raw.x; return *this; }
  FLASH_INLINE volatile Narrow& operator=(const volatile Raw& raw) volatile { bits = raw.x; return *this; }
  FLASH_INLINE operator Raw() const { return {bits}; }
  FLASH_INLINE operator Raw() const volatile { return {bits}; }
  FLASH_INLINE operator float() const;
  FLASH_INLINE operator bool() const { return (bits & 0x7fffu) != 0; }
#define FLASH_TO(Integer) FLASH_INLINE operator Integer() const;
#define FLASH_TO_INTEGERS                                                                               \
  FLASH_TO(char) FLASH_TO(signed char) FLASH_TO(unsigned char) FLASH_TO(short) FLASH_TO(unsigned short) \
  FLASH_TO(int) FLASH_TO(unsigned) FLASH_TO(long) FLASH_TO(unsigned long) FLASH_TO(long long)           \
  FLASH_TO(unsigned long long)
  FLASH_TO_INTEGERS
#undef FLASH_TO
};
template <class Host, class Raw>
struct HostType<Narrow<Host, Raw>> { using type = Host; };
using __half = Narrow<flash::half, __half_raw>;
using __nv_bfloat16 = Narrow<flash::bfloat16, __nv_bfloat16_raw>;
static_assert(std::is_trivially_copyable_v<__half> && std::is_trivially_default_constructible_v<__half>);

// A pair is made of two halfs, not of one.
#define FLASH_PAIR(H2, H)                                                                    \
  struct alignas(4) H2##_raw {                                                               \
    unsigned short x, y;                                                                     \
  };                                                                                         \
  struct alignas(4) H2 {                                                                     \
    H x, y;                                                                                  \
    H2() = default;                                                                          \
    FLASH_INLINE constexpr H2(const H& a, const H& b) : x(a), y(b) {}                        \
    FLASH_INLINE constexpr H2(const H2##_raw& raw) : x(H##_raw{raw.x}), y(H##_raw{raw.y}) {} \
    FLASH_INLINE operator H2##_raw() const { return {x.bits, y.bits}; }                      \
  };                                                                                         \
  static_assert(std::is_trivially_copyable_v<H2> && std::is_trivially_default_constructible_v<H2>);
FLASH_PAIR(__half2, __half)
FLASH_PAIR(__nv_bfloat162, __nv_bfloat16)
#undef FLASH_PAIR

// Widening is exact; the GPU turns a half NaN into the one canonical NaN, and keeps a bfloat16 NaN's bits.
FLASH_INLINE float half_to_float(__half x) {
  if ((x.bits & 0x7fffu) > 0x7c00u) return std::bit_cast<float>(0x7fffffffu);
  return flash::to_float(flash::half::of_bits(x.bits));
}
FLASH_INLINE float half_to_float(__nv_bfloat16 x) { return flash::to_float(flash::bfloat16::of_bits(x.bits)); }
template <class Host, class Raw>
FLASH_INLINE Narrow<Host, Raw>::operator float() const { return flash::half_to_float(*this); }
#define FLASH_TO(Integer)                                                       \
  template <class Host, class Raw>                                              \
  FLASH_INLINE Narrow<Host, Raw>::operator Integer() const {                    \
    return to_integer<Integer>(flash::half_to_float(*this), Rounding::to_zero); \
  }
FLASH_TO_INTEGERS
#undef FLASH_TO
#undef FLASH_TO_INTEGERS
// a*b+c with one rounding to H: the double sum is rounded to odd first, so that rounding it again is harmless.
template <class H>
FLASH_INLINE H fused(H a, H b, H c) {
  FLASH_COUNT(flops, 2);
  const double p = static_cast<double>(half_to_float(a)) * half_to_float(b), q = half_to_float(c), s = p + q;
  const double shift = s - p, error = (p - (s - shift)) + (q - shift);
  if (!(s - s == 0)) return narrow<H>(static_cast<float>(s));  // infinite or NaN
  auto bits = std::bit_cast<std::uint64_t>(s);
  if (error != 0 && !(bits & 1)) bits += (error > 0) == (s > 0) ? 1 : -1;
  return narrow<H>(to_odd(std::bit_cast<double>(bits)));
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
  FLASH_INLINE H __hneg(H a) { return to(a) != to(a) ? half_of<H>(0x7fff) : half_of<H>(a.bits ^ 0x8000u); } \
  FLASH_INLINE H __habs(H a) { return to(a) != to(a) ? half_of<H>(0x7fff) : half_of<H>(a.bits & 0x7fffu); } \
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
  FLASH_INLINE H2 __hmin2(H2 a, H2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                          \
  FLASH_INLINE H2 __h2div(H2 a, H2 b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }                          \
  FLASH_INLINE H2 __hneg2(H2 a) { return {__hneg(a.x), __hneg(a.y)}; }                                          \
  FLASH_INLINE H2 __habs2(H2 a) { return {__habs(a.x), __habs(a.y)}; }                                          \
  FLASH_INLINE H2 operator+(H2 a, H2 b) { return __hadd2(a, b); }                                               \
  FLASH_INLINE H2 operator-(H2 a, H2 b) { return __hsub2(a, b); }                                               \
  FLASH_INLINE H2 operator*(H2 a, H2 b) { return __hmul2(a, b); }                                               \
  FLASH_INLINE H2 operator/(H2 a, H2 b) { return __h2div(a, b); }                                               \
  FLASH_INLINE H2 operator-(H2 a) { return __hneg2(a); }                                                        \
  FLASH_INLINE H2& operator+=(H2& a, H2 b) { return a = a + b; }                                                \
  FLASH_INLINE H2& operator-=(H2& a, H2 b) { return a = a - b; }                                                \
  FLASH_INLINE H2& operator*=(H2& a, H2 b) { return a = a * b; }                                                \
  FLASH_INLINE H& operator/=(H& a, H b) { return a = a / b; }                                                   \
  FLASH_INLINE bool operator!=(H a, H b) { return !__heq(a, b); }                                               \
  FLASH_INLINE H operator+(H a) { return a; }                                                                   \
  FLASH_INLINE H& operator++(H& a) { return a += narrow<H>(1); }                                                \
  FLASH_INLINE H& operator--(H& a) { return a -= narrow<H>(1); }                                                \
  FLASH_INLINE H operator++(H& a, int) { const H before = a; ++a; return before; }                              \
  FLASH_INLINE H operator--(H& a, int) { const H before = a; --a; return before; }                              \
  FLASH_INLINE bool __hbeq2(H2 a, H2 b) { return __heq(a.x, b.x) && __heq(a.y, b.y); }                          \
  FLASH_INLINE bool __hbne2(H2 a, H2 b) { return __hne(a.x, b.x) && __hne(a.y, b.y); }                          \
  FLASH_INLINE bool __hblt2(H2 a, H2 b) { return __hlt(a.x, b.x) && __hlt(a.y, b.y); }                          \
  FLASH_INLINE bool __hble2(H2 a, H2 b) { return __hle(a.x, b.x) && __hle(a.y, b.y); }                          \
  FLASH_INLINE bool __hbgt2(H2 a, H2 b) { return __hgt(a.x, b.x) && __hgt(a.y, b.y); }                          \
  FLASH_INLINE bool __hbge2(H2 a, H2 b) { return __hge(a.x, b.x) && __hge(a.y, b.y); }                          \
  FLASH_INLINE bool operator==(H2 a, H2 b) { return __hbeq2(a, b); }                                            \
  FLASH_INLINE bool operator!=(H2 a, H2 b) { return a.x != b.x && a.y != b.y; }                                 \
  FLASH_INLINE bool operator<(H2 a, H2 b) { return __hblt2(a, b); }                                             \
  FLASH_INLINE bool operator<=(H2 a, H2 b) { return __hble2(a, b); }                                            \
  FLASH_INLINE bool operator>(H2 a, H2 b) { return __hbgt2(a, b); }                                             \
  FLASH_INLINE bool operator>=(H2 a, H2 b) { return __hbge2(a, b); }                                            \
  FLASH_INLINE H2 operator+(H2 a) { return a; }                                                                 \
  FLASH_INLINE H2& operator/=(H2& a, H2 b) { return a = a / b; }                                                \
  FLASH_INLINE H2& operator++(H2& a) { return a += H2(narrow<H>(1), narrow<H>(1)); }                            \
  FLASH_INLINE H2& operator--(H2& a) { return a -= H2(narrow<H>(1), narrow<H>(1)); }                            \
  FLASH_INLINE H2 operator++(H2& a, int) { const H2 before = a; ++a; return before; }                           \
  FLASH_INLINE H2 operator--(H2& a, int) { const H2 before = a; --a; return before; }                           \
  FLASH_INLINE bool __hisinf(H a) { return to(a) - to(a) != 0 && to(a) == to(a); }                              \
  FLASH_INLINE H hexp(H a) { FLASH_COUNT(exps, 1); return narrow<H>(__builtin_expf(to(a))); }                   \
  FLASH_INLINE H hexp2(H a) { FLASH_COUNT(exps, 1); return narrow<H>(__builtin_exp2f(to(a))); }                 \
  FLASH_INLINE H hlog(H a) { return narrow<H>(__builtin_logf(to(a))); }                                         \
  FLASH_INLINE H hlog2(H a) { return narrow<H>(__builtin_log2f(to(a))); }                                       \
  FLASH_INLINE H hsqrt(H a) { return narrow<H>(__builtin_sqrtf(to(a))); }                                       \
  FLASH_INLINE H hrsqrt(H a) { return narrow<H>(1.0f / __builtin_sqrtf(to(a))); }                               \
  FLASH_INLINE H hrcp(H a) { return narrow<H>(1.0f / to(a)); }                                                  \
  FLASH_INLINE H hsin(H a) { return narrow<H>(__builtin_sinf(to(a))); }                                         \
  FLASH_INLINE H hcos(H a) { return narrow<H>(__builtin_cosf(to(a))); }                                         \
  FLASH_INLINE H hfloor(H a) { return narrow<H>(__builtin_floorf(to(a))); }                                     \
  FLASH_INLINE H hceil(H a) { return narrow<H>(__builtin_ceilf(to(a))); }                                       \
  FLASH_INLINE H hrint(H a) { return narrow<H>(__builtin_rintf(to(a))); }                                       \
  FLASH_INLINE H htrunc(H a) { return narrow<H>(__builtin_truncf(to(a))); }                                     \
  FLASH_INLINE H2 h2exp(H2 a) { return {hexp(a.x), hexp(a.y)}; }                                                \
  FLASH_INLINE H2 h2sqrt(H2 a) { return {hsqrt(a.x), hsqrt(a.y)}; }                                             \
  FLASH_INLINE H2 h2rcp(H2 a) { return {hrcp(a.x), hrcp(a.y)}; }                                                \
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
FLASH_INLINE __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
FLASH_INLINE __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
FLASH_INLINE __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
FLASH_INLINE __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
FLASH_INLINE __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
FLASH_INLINE __half2 make_half2(__half x, __half y) { return {x, y}; }
FLASH_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
FLASH_INLINE __half __double2half(double x) { return narrow<__half>(to_odd(x)); }
FLASH_INLINE __nv_bfloat16 __double2bfloat16(double x) { return narrow<__nv_bfloat16>(to_odd(x)); }
FLASH_INLINE unsigned short __half_as_ushort(__half x) { return x.bits; }
FLASH_INLINE __half __ushort_as_half(unsigned short x) { return half_of<__half>(x); }
FLASH_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
FLASH_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return half_of<__nv_bfloat16>(x); }

}  // namespace flash::inline FLASH_MACHINE

#if defined(FLASH_PROGRAM)
// Functions of a half are found with their argument's namespace; these have none.
using flash::__bfloat162bfloat162, flash::__float22bfloat162_rn, flash::__float2bfloat16, flash::__float2bfloat162_rn;
using flash::__float2bfloat16_rn, flash::__floats2bfloat162_rn, flash::__ushort_as_bfloat16;
using flash::__float22half2_rn, flash::__float2half, flash::__float2half2_rn, flash::__float2half_rn;
using flash::__floats2half2_rn, flash::__ushort_as_half;
using flash::__double2bfloat16, flash::__double2half;
using flash::make_bfloat162, flash::make_half2;
#endif
// Within namespace flash `half` is the host's type, here as under nvcc.
using flash::__half, flash::__half2, flash::__nv_bfloat16, flash::__nv_bfloat162;
using flash::__half_raw, flash::__half2_raw, flash::__nv_bfloat16_raw, flash::__nv_bfloat162_raw;
using half = flash::__half;
using half2 = flash::__half2;
using nv_bfloat16 = flash::__nv_bfloat16;
using nv_bfloat162 = flash::__nv_bfloat162;
