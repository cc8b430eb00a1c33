// dialect.hpp: CUDA's words for g++: qualifiers, built-in variables, barriers, warp operations, atomics, mathematics.
// Everything lives in this machine's inline namespace and is inlined, so that the fast and the checked build of one
// kernel never share a function. Half precision: dialect_half.hpp. Use: through "gpu/kernel.cuh" only.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <type_traits>

#include "sim/core/padding.hpp"
#include "sim/core/simt.hpp"
#include "sim/dialect/dialect_memory.hpp"
#include "sim/dialect/operations.hpp"
#include "sim/dialect/tally.hpp"

#define __global__ __attribute__((noinline))
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) flash_launch_bounds(__VA_ARGS__)  // sim/compiler/launches.cpp makes a check of it
#define __align__(n) __attribute__((__aligned__(n)))
// __device__, __shared__, __constant__, __managed__: sim/compiler/variables.cpp.

#define FLASH_SITE flash::simt::Site site = flash::simt::Site::current()
// The words of CUDA stand in namespace flash, where a kernel file's kernels do, so that two machines' fit into one
// program; in a program of its own (sim/cuda) they are global, as CUDA's are.
#if defined(FLASH_PROGRAM)
#define FLASH_WORDS
#define FLASH_WORDS_END
#else
#define FLASH_WORDS namespace flash::inline FLASH_MACHINE {
#define FLASH_WORDS_END }
#endif

FLASH_WORDS

using flash::simt::blockDim;
using flash::simt::blockIdx;
using flash::simt::dim3;
using flash::simt::gridDim;
using flash::simt::threadIdx;
using flash::simt::uint3;
constexpr int warpSize = 32;

// ---- vector types, with CUDA's alignment -------------------------------------------------------------------------

#define FLASH_VECTORS(T, name, a2, a4)                                                                          \
  struct alignas(a2) name##2 { T x, y; };                                                                       \
  struct name##3 { T x, y, z; };                                                                                \
  struct alignas(a4) name##4 { T x, y, z, w; };                                                                 \
  FLASH_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }                                              \
  FLASH_INLINE name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                      \
  FLASH_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
FLASH_VECTORS(float, float, 8, 16)
FLASH_VECTORS(int, int, 8, 16)
FLASH_VECTORS(unsigned char, uchar, 2, 4)
FLASH_VECTORS(short, short, 4, 8)
#undef FLASH_VECTORS
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) double2 { double x, y; };
FLASH_INLINE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
FLASH_INLINE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
FLASH_INLINE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
FLASH_INLINE double2 make_double2(double x, double y) { return {x, y}; }

// ---- bits ---------------------------------------------------------------------------------------------------------

FLASH_INLINE int __float_as_int(float x) { return std::bit_cast<int>(x); }
FLASH_INLINE unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
FLASH_INLINE float __int_as_float(int x) { return std::bit_cast<float>(x); }
FLASH_INLINE float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
FLASH_INLINE long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
FLASH_INLINE double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
FLASH_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
FLASH_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
FLASH_INLINE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
FLASH_INLINE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
FLASH_INLINE int __ffs(int x) { return __builtin_ffs(x); }
FLASH_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
FLASH_INLINE unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}

// ---- mathematics: each rounds as IEEE 754 says; fmaf is one rounding. The fast forms (__expf) are exact here. -------

#if !defined(FLASH_PROGRAM)  // there the C library has these names; sim/cuda/mathematics.cpp counts its calls
FLASH_INLINE float fmaf(float a, float b, float c) {
  FLASH_COUNT(flops, 2);
  return __builtin_fmaf(a, b, c);
}
FLASH_INLINE double fma(double a, double b, double c) {
  FLASH_COUNT(flops, 2);
  return __builtin_fma(a, b, c);
}
FLASH_INLINE float sqrtf(float x) { return __builtin_sqrtf(x); }
FLASH_INLINE float exp2f(float x) {
  FLASH_COUNT(exps, 1);
  return __builtin_exp2f(x);
}
FLASH_INLINE float expf(float x) {
  FLASH_COUNT(exps, 1);
  return __builtin_expf(x);
}
FLASH_INLINE double exp(double x) {
  FLASH_COUNT(exps, 1);
  return __builtin_exp(x);
}
FLASH_INLINE double exp2(double x) {
  FLASH_COUNT(exps, 1);
  return __builtin_exp2(x);
}
FLASH_INLINE float logf(float x) { return __builtin_logf(x); }
FLASH_INLINE float log2f(float x) { return __builtin_log2f(x); }
FLASH_INLINE float fabsf(float x) { return __builtin_fabsf(x); }
FLASH_INLINE float fmaxf(float a, float b) { return flash::larger(a, b); }
FLASH_INLINE float fminf(float a, float b) { return flash::smaller(a, b); }
#endif
FLASH_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
FLASH_INLINE float __fadd_rn(float a, float b) {
  FLASH_COUNT(flops, 1);
  return a + b;
}
FLASH_INLINE float __fsub_rn(float a, float b) {
  FLASH_COUNT(flops, 1);
  return a - b;
}
FLASH_INLINE float __fmul_rn(float a, float b) {
  FLASH_COUNT(flops, 1);
  return a * b;
}
FLASH_INLINE float __fdiv_rn(float a, float b) { return a / b; }
FLASH_INLINE float __fdividef(float a, float b) { return a / b; }
FLASH_INLINE float __frcp_rn(float a) { return 1.0f / a; }
FLASH_INLINE float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
FLASH_INLINE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
FLASH_INLINE float __expf(float x) { return expf(x); }
FLASH_INLINE float __logf(float x) { return __builtin_logf(x); }
FLASH_INLINE float __log2f(float x) { return __builtin_log2f(x); }
FLASH_INLINE float __saturatef(float x) { return flash::smaller(flash::larger(x, 0.0f), 1.0f); }
#define FLASH_MIN_MAX(T)                                                                                        \
  FLASH_INLINE T min(T a, T b) { return b < a ? b : a; }                                                        \
  FLASH_INLINE T max(T a, T b) { return a < b ? b : a; }
FLASH_MIN_MAX(int)
FLASH_MIN_MAX(unsigned)
FLASH_MIN_MAX(long)
FLASH_MIN_MAX(unsigned long)
FLASH_MIN_MAX(long long)
FLASH_MIN_MAX(unsigned long long)
FLASH_MIN_MAX(double)
#undef FLASH_MIN_MAX
FLASH_INLINE float min(float a, float b) { return flash::smaller(a, b); }
FLASH_INLINE float max(float a, float b) { return flash::larger(a, b); }
// Conversions to integers saturate, and NaN gives 0, as on the GPU.
FLASH_INLINE int __float2int_rz(float x) {
  if (x != x) return 0;
  return x >= 0x1p31f ? 2147483647 : x < -0x1p31f ? -2147483647 - 1 : static_cast<int>(x);
}
FLASH_INLINE int __float2int_rn(float x) { return __float2int_rz(__builtin_rintf(x)); }
FLASH_INLINE int __float2int_rd(float x) { return __float2int_rz(__builtin_floorf(x)); }
FLASH_INLINE int __float2int_ru(float x) { return __float2int_rz(__builtin_ceilf(x)); }
FLASH_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }
FLASH_INLINE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

template <class T>
FLASH_INLINE T __ldg(const T* p) {
  return *p;
}

// ---- barriers -----------------------------------------------------------------------------------------------------

FLASH_INLINE void __syncthreads(FLASH_SITE) { flash::simt::barrier(flash::simt::Vote::none, 0, site); }
FLASH_INLINE int __syncthreads_count(int predicate, FLASH_SITE) {
  return flash::simt::barrier(flash::simt::Vote::count, predicate, site);
}
FLASH_INLINE int __syncthreads_and(int predicate, FLASH_SITE) {
  return flash::simt::barrier(flash::simt::Vote::all, predicate, site);
}
FLASH_INLINE int __syncthreads_or(int predicate, FLASH_SITE) {
  return flash::simt::barrier(flash::simt::Vote::any, predicate, site);
}
FLASH_INLINE void __threadfence() { flash::simt::fence(); }
FLASH_INLINE void __threadfence_block() { flash::simt::fence(); }

// ---- warp operations ----------------------------------------------------------------------------------------------

FLASH_INLINE void __syncwarp(unsigned mask = 0xffffffffu, FLASH_SITE) {
  flash::simt::warp_op(flash::simt::WarpOp::sync, mask, 0, 0, 0, 32, site);
}
FLASH_INLINE unsigned __activemask(FLASH_SITE) {
  return static_cast<unsigned>(flash::simt::warp_op(flash::simt::WarpOp::activemask, 0, 0, 0, 0, 32, site));
}
#define FLASH_SHUFFLE(name, op, Param)                                                                          \
  template <class T>                                                                                            \
  FLASH_INLINE T name(unsigned mask, T value, Param param, int width = 32, FLASH_SITE) {                        \
    return flash::from_word<T>(flash::simt::warp_op(flash::simt::WarpOp::op, mask, flash::to_word(value),       \
                                                    sizeof(T), static_cast<unsigned>(param),                    \
                                                    static_cast<unsigned>(width), site));                       \
  }
FLASH_SHUFFLE(__shfl_sync, shfl, int)
FLASH_SHUFFLE(__shfl_up_sync, shfl_up, unsigned)
FLASH_SHUFFLE(__shfl_down_sync, shfl_down, unsigned)
FLASH_SHUFFLE(__shfl_xor_sync, shfl_xor, int)
#undef FLASH_SHUFFLE
#define FLASH_VOTE(Result, name, op)                                                                            \
  FLASH_INLINE Result name(unsigned mask, int predicate, FLASH_SITE) {                                          \
    return static_cast<Result>(                                                                                 \
        flash::simt::warp_op(flash::simt::WarpOp::op, mask, predicate != 0, 4, 0, 32, site));                   \
  }
FLASH_VOTE(unsigned, __ballot_sync, ballot)
FLASH_VOTE(int, __any_sync, any)
FLASH_VOTE(int, __all_sync, all)
#undef FLASH_VOTE
template <class T>
FLASH_INLINE unsigned __match_any_sync(unsigned mask, T value, FLASH_SITE) {
  return static_cast<unsigned>(
      flash::simt::warp_op(flash::simt::WarpOp::match_any, mask, flash::to_word(value), sizeof(T), 0, 32, site));
}
#define FLASH_REDUCE(T, name, op)                                                                               \
  FLASH_INLINE T name(unsigned mask, T value, FLASH_SITE) {                                                     \
    return flash::from_word<T>(                                                                                 \
        flash::simt::warp_op(flash::simt::WarpOp::op, mask, flash::to_word(value), 4, 0, 32, site));            \
  }
FLASH_REDUCE(int, __reduce_add_sync, reduce_add)
FLASH_REDUCE(unsigned, __reduce_add_sync, reduce_add)
FLASH_REDUCE(int, __reduce_min_sync, reduce_min_signed)
FLASH_REDUCE(unsigned, __reduce_min_sync, reduce_min)
FLASH_REDUCE(int, __reduce_max_sync, reduce_max_signed)
FLASH_REDUCE(unsigned, __reduce_max_sync, reduce_max)
FLASH_REDUCE(unsigned, __reduce_and_sync, reduce_and)
FLASH_REDUCE(unsigned, __reduce_or_sync, reduce_or)
FLASH_REDUCE(unsigned, __reduce_xor_sync, reduce_xor)
#undef FLASH_REDUCE

// ---- atomics: on global and shared memory, relaxed, for the whole device --------------------------------------------

#define FLASH_ATOMIC(name, result)                                                                              \
  template <class T>                                                                                            \
  FLASH_INLINE T name(T* p, flash::same_t<T> v, FLASH_SITE) {                                                   \
    return flash::atomic_step(p, [v](T old) { (void)old; return static_cast<T>(result); }, site);               \
  }
FLASH_ATOMIC(atomicAdd, old + v)
FLASH_ATOMIC(atomicSub, old - v)
FLASH_ATOMIC(atomicMin, v < old ? v : old)
FLASH_ATOMIC(atomicMax, old < v ? v : old)
FLASH_ATOMIC(atomicAnd, old & v)
FLASH_ATOMIC(atomicOr, old | v)
FLASH_ATOMIC(atomicXor, old ^ v)
FLASH_ATOMIC(atomicInc, old >= v ? T{0} : old + 1)
FLASH_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef FLASH_ATOMIC
template <class T>
FLASH_INLINE T atomicExch(T* p, flash::same_t<T> v, FLASH_SITE) {
  return flash::atomic_step(p, [v](T) { return v; }, site, false);
}
template <class T>
FLASH_INLINE T atomicCAS(T* p, flash::same_t<T> compare, flash::same_t<T> v, FLASH_SITE) {
  return flash::atomic_step(
      p, [compare, v](T old) { return flash::to_word(old) == flash::to_word(compare) ? v : old; }, site);
}

FLASH_WORDS_END

#include "sim/dialect/dialect_half.hpp"
