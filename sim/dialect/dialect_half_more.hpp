// dialect_half_more.hpp: the rarer words of CUDA's halfs: conversions with a rounding of one's own and of integers,
// comparisons of pairs, saturation, the lesser and greater of numbers and NaN. Apart, since few kernels need them.
// Use: through <cuda_fp16.h> or <cuda_bf16.h>.
#pragma once
#include "sim/dialect/dialect.hpp"

namespace flash::inline FLASH_MACHINE {

// x, rounded so; a half that is not exact has a neighbour on either side, infinity included.
template <class H>
FLASH_INLINE H narrow_to(double x, Rounding to) {
  const H nearest = narrow<H>(to_odd(x));
  const auto value = static_cast<double>(half_to_float(nearest));
  const bool above = value > x, below = value < x, negative = std::signbit(x);
  const bool down = above && (to == Rounding::down || (to == Rounding::to_zero && !negative));
  const bool up = below && (to == Rounding::up || (to == Rounding::to_zero && negative));
  if (!down && !up) return nearest;
  // One bit towards zero, or away from it; what was rounded to zero takes its sign from x.
  const unsigned magnitude = nearest.bits & 0x7fffu, sign = negative ? 0x8000u : 0;
  return half_of<H>(sign | (down == negative ? magnitude + 1 : magnitude - 1));
}
// x, between 0 and 1; NaN is 0.
template <class H>
FLASH_INLINE H saturated(H x) {
  const float value = half_to_float(x);
  return narrow<H>(value > 0 ? (value < 1 ? value : 1.0f) : 0.0f);
}
// x, or 0 where it is negative; NaN stays.
template <class H>
FLASH_INLINE H relu(H x) {
  return half_to_float(x) < 0 ? half_of<H>(0) : x;
}
template <class H>
FLASH_INLINE H truth(bool x) {
  return narrow<H>(x ? 1.0f : 0.0f);
}

// word(pair) of word(half).
#define FLASH_OF_PAIRS(H2, word, word2) \
  FLASH_INLINE H2 word2(H2 a) { return {word(a.x), word(a.y)}; }
#define FLASH_OF_TWO_PAIRS(H2, word, word2) \
  FLASH_INLINE H2 word2(H2 a, H2 b) { return {word(a.x, b.x), word(a.y, b.y)}; }
#define FLASH_OF_THREE_PAIRS(H2, word, word2) \
  FLASH_INLINE H2 word2(H2 a, H2 b, H2 c) { return {word(a.x, b.x, c.x), word(a.y, b.y, c.y)}; }
// Ordered: false of a NaN; unordered (…u): true.
#define FLASH_COMPARISON(H, H2, name)                                                                                \
  FLASH_INLINE bool __h##name##u(H a, H b) { return __hisnan(a) || __hisnan(b) || __h##name(a, b); }                 \
  FLASH_INLINE H2 __h##name##2(H2 a, H2 b) { return {truth<H>(__h##name(a.x, b.x)), truth<H>(__h##name(a.y, b.y))}; } \
  FLASH_INLINE H2 __h##name##u2(H2 a, H2 b) {                                                                        \
    return {truth<H>(__h##name##u(a.x, b.x)), truth<H>(__h##name##u(a.y, b.y))};                                     \
  }                                                                                                                  \
  FLASH_INLINE bool __hb##name##u2(H2 a, H2 b) { return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y); }          \
  FLASH_INLINE unsigned __h##name##2_mask(H2 a, H2 b) {                                                              \
    return (__h##name(a.x, b.x) ? 0xffffu : 0) | (__h##name(a.y, b.y) ? 0xffff0000u : 0);                            \
  }
#define FLASH_CONVERSION(H, half, suffix, mode)                                                               \
  FLASH_INLINE H __float2##half##_##suffix(float x) { return narrow_to<H>(x, Rounding::mode); }               \
  FLASH_OF_INTEGERS(H, half, suffix, mode)
#define FLASH_OF_INTEGERS(H, half, suffix, mode)                                                              \
  FLASH_OF_INTEGER(H, half, int, int, suffix, mode) FLASH_OF_INTEGER(H, half, unsigned, uint, suffix, mode)   \
  FLASH_OF_SHORTS(H, half, suffix, mode)
#define FLASH_OF_SHORTS(H, half, suffix, mode)                                                                \
  FLASH_OF_INTEGER(H, half, short, short, suffix, mode)                                                       \
  FLASH_OF_INTEGER(H, half, unsigned short, ushort, suffix, mode)                                             \
  FLASH_OF_INTEGER(H, half, long long, ll, suffix, mode)                                                      \
  FLASH_OF_INTEGER(H, half, unsigned long long, ull, suffix, mode)
// Of 64 bits those that a double does not hold make no difference but to a number that is just beside a half's middle.
#define FLASH_OF_INTEGER(H, half, T, name, suffix, mode)                                                      \
  FLASH_INLINE H __##name##2##half##_##suffix(T x) {                                                          \
    return narrow_to<H>(narrowed_to_odd(static_cast<long double>(x)), Rounding::mode);                        \
  }                                                                                                           \
  FLASH_INLINE T __##half##2##name##_##suffix(H x) { return to_integer<T>(half_to_float(x), Rounding::mode); }
// The nearest double whose last bit is odd where it is not exact.
FLASH_INLINE double narrowed_to_odd(long double x) {
  const auto d = static_cast<double>(x);
  auto bits = std::bit_cast<std::uint64_t>(d);
  if (static_cast<long double>(d) == x || (bits & 1)) return d;
  return std::bit_cast<double>(bits + ((x > static_cast<long double>(d)) == (d > 0) ? 1 : -1));
}

#define FLASH_HALF_MORE(H, H2, half)                                                                          \
  FLASH_COMPARISON(H, H2, eq) FLASH_COMPARISON(H, H2, ne) FLASH_COMPARISON(H, H2, lt)                         \
  FLASH_COMPARISON(H, H2, le) FLASH_COMPARISON(H, H2, gt) FLASH_COMPARISON(H, H2, ge)                         \
  FLASH_INLINE H2 __hisnan2(H2 a) { return {truth<H>(__hisnan(a.x)), truth<H>(__hisnan(a.y))}; }              \
  FLASH_INLINE H __hadd_rn(H a, H b) { return __hadd(a, b); }                                                 \
  FLASH_INLINE H __hsub_rn(H a, H b) { return __hsub(a, b); }                                                 \
  FLASH_INLINE H __hmul_rn(H a, H b) { return __hmul(a, b); }                                                 \
  FLASH_INLINE H __hadd_sat(H a, H b) { return saturated(__hadd(a, b)); }                                     \
  FLASH_INLINE H __hsub_sat(H a, H b) { return saturated(__hsub(a, b)); }                                     \
  FLASH_INLINE H __hmul_sat(H a, H b) { return saturated(__hmul(a, b)); }                                     \
  FLASH_INLINE H __hfma_sat(H a, H b, H c) { return saturated(__hfma(a, b, c)); }                             \
  FLASH_INLINE H __hfma_relu(H a, H b, H c) { return relu(__hfma(a, b, c)); }                                 \
  FLASH_INLINE H __hmin_nan(H a, H b) {                                                                       \
    return __hisnan(a) || __hisnan(b) ? half_of<H>(0x7fff) : __hmin(a, b);                                    \
  }                                                                                                           \
  FLASH_INLINE H __hmax_nan(H a, H b) {                                                                       \
    return __hisnan(a) || __hisnan(b) ? half_of<H>(0x7fff) : __hmax(a, b);                                    \
  }                                                                                                           \
  FLASH_OF_TWO_PAIRS(H2, __hadd_rn, __hadd2_rn) FLASH_OF_TWO_PAIRS(H2, __hsub_rn, __hsub2_rn)                 \
  FLASH_OF_TWO_PAIRS(H2, __hmul_rn, __hmul2_rn) FLASH_OF_TWO_PAIRS(H2, __hadd_sat, __hadd2_sat)               \
  FLASH_OF_TWO_PAIRS(H2, __hsub_sat, __hsub2_sat) FLASH_OF_TWO_PAIRS(H2, __hmul_sat, __hmul2_sat)             \
  FLASH_OF_TWO_PAIRS(H2, __hmin_nan, __hmin2_nan) FLASH_OF_TWO_PAIRS(H2, __hmax_nan, __hmax2_nan)             \
  FLASH_OF_THREE_PAIRS(H2, __hfma_sat, __hfma2_sat) FLASH_OF_THREE_PAIRS(H2, __hfma_relu, __hfma2_relu)       \
  FLASH_INLINE H hlog10(H a) { return narrow<H>(__builtin_log10f(half_to_float(a))); }                        \
  FLASH_INLINE H hexp10(H a) {                                                                                \
    FLASH_COUNT(exps, 1);                                                                                     \
    return narrow<H>(static_cast<float>(__builtin_exp10(static_cast<double>(half_to_float(a)))));             \
  }                                                                                                           \
  FLASH_INLINE H htanh(H a) { return narrow<H>(__builtin_tanhf(half_to_float(a))); }                          \
  FLASH_OF_PAIRS(H2, hlog, h2log) FLASH_OF_PAIRS(H2, hlog2, h2log2) FLASH_OF_PAIRS(H2, hlog10, h2log10)       \
  FLASH_OF_PAIRS(H2, hexp2, h2exp2) FLASH_OF_PAIRS(H2, hexp10, h2exp10) FLASH_OF_PAIRS(H2, hrsqrt, h2rsqrt)   \
  FLASH_OF_PAIRS(H2, hsin, h2sin) FLASH_OF_PAIRS(H2, hcos, h2cos) FLASH_OF_PAIRS(H2, hfloor, h2floor)         \
  FLASH_OF_PAIRS(H2, hceil, h2ceil) FLASH_OF_PAIRS(H2, hrint, h2rint) FLASH_OF_PAIRS(H2, htrunc, h2trunc)     \
  FLASH_OF_PAIRS(H2, htanh, h2tanh)                                                                           \
  FLASH_OF_INTEGERS(H, half, rn, nearest) FLASH_CONVERSION(H, half, rz, to_zero)                              \
  FLASH_CONVERSION(H, half, ru, up) FLASH_CONVERSION(H, half, rd, down)
FLASH_HALF_MORE(__half, __half2, half)
FLASH_HALF_MORE(__nv_bfloat16, __nv_bfloat162, bfloat16)
#undef FLASH_HALF_MORE
#undef FLASH_CONVERSION
#undef FLASH_COMPARISON

FLASH_INLINE short __half_as_short(__half x) { return static_cast<short>(x.bits); }
FLASH_INLINE __half __short_as_half(short x) { return half_of<__half>(static_cast<unsigned short>(x)); }
FLASH_INLINE short __bfloat16_as_short(__nv_bfloat16 x) { return static_cast<short>(x.bits); }
FLASH_INLINE __nv_bfloat16 __short_as_bfloat16(short x) {
  return half_of<__nv_bfloat16>(static_cast<unsigned short>(x));
}
FLASH_INLINE __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
FLASH_INLINE __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
FLASH_INLINE __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
FLASH_INLINE __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }

}  // namespace flash::inline FLASH_MACHINE

#if defined(FLASH_PROGRAM)
// Functions of a half are found with their argument's namespace; these have none.
#define FLASH_USING(half, suffix)                                                                                \
  using flash::__int2##half##_##suffix, flash::__uint2##half##_##suffix, flash::__short2##half##_##suffix,       \
      flash::__ushort2##half##_##suffix, flash::__ll2##half##_##suffix, flash::__ull2##half##_##suffix,          \
      flash::__float2##half##_##suffix;
#define FLASH_USING_ALL(half) \
  FLASH_USING(half, rn) FLASH_USING(half, rz) FLASH_USING(half, ru) FLASH_USING(half, rd) \
  using flash::__short_as_##half;
FLASH_USING_ALL(half)
FLASH_USING_ALL(bfloat16)
#undef FLASH_USING_ALL
#undef FLASH_USING
#endif
