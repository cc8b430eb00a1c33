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

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) flash_launch_bounds(__VA_ARGS__)  // launches.cpp makes a check of it
#define __align__(n) alignas(n)
// What a kernel file may not use, each with its replacement (docs/simulator.md).
#define __shared__ \
  _Pragma("GCC error \"shared memory is one struct: Smem& s = shared<Smem>(), with <<<grid, block, sizeof(Smem)>>>\"")
#define __constant__ _Pragma("GCC error \"constant memory is not simulated: pass a kernel argument or use constexpr\"")
#define __managed__ _Pragma("GCC error \"managed memory is not simulated: use Machine::upload and download\"")
#define asm _Pragma("GCC error \"no inline assembly in kernels: use the functions of gpu/kernel.cuh\"") asm

#define FLASH_INLINE [[gnu::always_inline]] inline

namespace flash::inline FLASH_MACHINE {

using simt::blockDim;
using simt::blockIdx;
using simt::dim3;
using simt::gridDim;
using simt::Site;
using simt::threadIdx;
using simt::uint3;
constexpr int warpSize = 32;

// ---- vector types, with CUDA's alignment -------------------------------------------------------------------------

#define FLASH_VECTORS(T, name, a2, a4)                                                                          \
  struct alignas(a2) name##2 { T x, y; };                                                                       \
  struct name##3 { T x, y, z; };                                                                                \
  struct alignas(a4) name##4 { T x, y, z, w; };                                                                 \
  FLASH_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }                                              \
  FLASH_INLINE name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                      \
  FLASH_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
using uchar = unsigned char;
FLASH_VECTORS(float, float, 8, 16)
FLASH_VECTORS(int, int, 8, 16)
FLASH_VECTORS(uchar, uchar, 2, 4)
FLASH_VECTORS(short, short, 4, 8)
#undef FLASH_VECTORS
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) double2 { double x, y; };
FLASH_INLINE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
FLASH_INLINE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
FLASH_INLINE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
FLASH_INLINE double2 make_double2(double x, double y) { return {x, y}; }

// ---- counting (checked build): one add to a thread-local word, invisible to the instrumentation -------------------

#if defined(FLASH_CHECKED) && defined(__x86_64__)
#define FLASH_COUNT(what, n) __asm__("addq %1, %0" : "+m"(simt::tally.what) : "i"(n))
#elif defined(FLASH_CHECKED)
#define FLASH_COUNT(what, n) (simt::tally.what += n)
#else
#define FLASH_COUNT(what, n) (void)0
#endif

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

FLASH_INLINE float fmaf(float a, float b, float c) {
  FLASH_COUNT(flops, 2);
  return __builtin_fmaf(a, b, c);
}
FLASH_INLINE double fma(double a, double b, double c) {
  FLASH_COUNT(flops, 2);
  return __builtin_fma(a, b, c);
}
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
FLASH_INLINE float sqrtf(float x) { return __builtin_sqrtf(x); }
FLASH_INLINE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
FLASH_INLINE float exp2f(float x) {
  FLASH_COUNT(exps, 1);
  return __builtin_exp2f(x);
}
FLASH_INLINE float expf(float x) {
  FLASH_COUNT(exps, 1);
  return __builtin_expf(x);
}
FLASH_INLINE float __expf(float x) { return expf(x); }
FLASH_INLINE double exp(double x) {
  FLASH_COUNT(exps, 1);
  return __builtin_exp(x);
}
FLASH_INLINE double exp2(double x) {
  FLASH_COUNT(exps, 1);
  return __builtin_exp2(x);
}
FLASH_INLINE float logf(float x) { return __builtin_logf(x); }
FLASH_INLINE float __logf(float x) { return __builtin_logf(x); }
FLASH_INLINE float log2f(float x) { return __builtin_log2f(x); }
FLASH_INLINE float __log2f(float x) { return __builtin_log2f(x); }
FLASH_INLINE float fabsf(float x) { return __builtin_fabsf(x); }
// A NaN operand gives the other one; +0 is above -0, as on the GPU.
FLASH_INLINE float fmaxf(float a, float b) {
  if (a == b) return __int_as_float(__float_as_int(a) & __float_as_int(b));
  return a > b || b != b ? a : b;
}
FLASH_INLINE float fminf(float a, float b) {
  if (a == b) return __int_as_float(__float_as_int(a) | __float_as_int(b));
  return a < b || b != b ? a : b;
}
FLASH_INLINE float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
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
FLASH_INLINE float min(float a, float b) { return fminf(a, b); }
FLASH_INLINE float max(float a, float b) { return fmaxf(a, b); }
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

FLASH_INLINE void __syncthreads(Site site = Site::current()) { simt::barrier(simt::Vote::none, 0, site); }
FLASH_INLINE int __syncthreads_count(int predicate, Site site = Site::current()) {
  return simt::barrier(simt::Vote::count, predicate, site);
}
FLASH_INLINE int __syncthreads_and(int predicate, Site site = Site::current()) {
  return simt::barrier(simt::Vote::all, predicate, site);
}
FLASH_INLINE int __syncthreads_or(int predicate, Site site = Site::current()) {
  return simt::barrier(simt::Vote::any, predicate, site);
}
FLASH_INLINE void __threadfence() { simt::fence(); }
FLASH_INLINE void __threadfence_block() { simt::fence(); }

// ---- warp operations ----------------------------------------------------------------------------------------------

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

FLASH_INLINE void __syncwarp(unsigned mask = 0xffffffffu, Site site = Site::current()) {
  simt::warp_op(simt::WarpOp::sync, mask, 0, 0, 0, 32, site);
}
FLASH_INLINE unsigned __activemask(Site site = Site::current()) {
  return static_cast<unsigned>(simt::warp_op(simt::WarpOp::activemask, 0, 0, 0, 0, 32, site));
}
#define FLASH_SHUFFLE(name, op, Param)                                                                          \
  template <class T>                                                                                            \
  FLASH_INLINE T name(unsigned mask, T value, Param param, int width = 32, Site site = Site::current()) {       \
    return from_word<T>(simt::warp_op(simt::WarpOp::op, mask, to_word(value), sizeof(T),                        \
                                      static_cast<unsigned>(param), static_cast<unsigned>(width), site));       \
  }
FLASH_SHUFFLE(__shfl_sync, shfl, int)
FLASH_SHUFFLE(__shfl_up_sync, shfl_up, unsigned)
FLASH_SHUFFLE(__shfl_down_sync, shfl_down, unsigned)
FLASH_SHUFFLE(__shfl_xor_sync, shfl_xor, int)
#undef FLASH_SHUFFLE
#define FLASH_VOTE(Result, name, op)                                                                            \
  FLASH_INLINE Result name(unsigned mask, int predicate, Site site = Site::current()) {                         \
    return static_cast<Result>(simt::warp_op(simt::WarpOp::op, mask, predicate != 0, 4, 0, 32, site));          \
  }
FLASH_VOTE(unsigned, __ballot_sync, ballot)
FLASH_VOTE(int, __any_sync, any)
FLASH_VOTE(int, __all_sync, all)
#undef FLASH_VOTE
template <class T>
FLASH_INLINE unsigned __match_any_sync(unsigned mask, T value, Site site = Site::current()) {
  return static_cast<unsigned>(simt::warp_op(simt::WarpOp::match_any, mask, to_word(value), sizeof(T), 0, 32, site));
}
#define FLASH_REDUCE(T, name, op)                                                                               \
  FLASH_INLINE T name(unsigned mask, T value, Site site = Site::current()) {                                    \
    return from_word<T>(simt::warp_op(simt::WarpOp::op, mask, to_word(value), 4, 0, 32, site));                 \
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

// Replaces *p by change(*p) in one step and gives the old value. Out of line without instrumentation in the checked
// build: there the simulator is told once, as one atomic access.
template <class T, class Change>
#if defined(FLASH_CHECKED)
__attribute__((noinline, no_sanitize("thread")))
#else
FLASH_INLINE
#endif
T exchange_with(T* p, Change change) {
  using Small = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, Small>;
  Bits* word = reinterpret_cast<Bits*>(p);
  Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
  Bits changed;
  do
    changed = __builtin_bit_cast(Bits, static_cast<T>(change(__builtin_bit_cast(T, old))));
  while (!__atomic_compare_exchange_n(word, &old, changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  if (changed != old) simt::memory_changed = true;
  return __builtin_bit_cast(T, old);
}
// The operand's type follows from the address, as with CUDA's overloads.
template <class T>
struct Same { using type = T; };
template <class T>
using same_t = typename Same<T>::type;
template <class T, class Change>
FLASH_INLINE T atomic_step(T* p, Change change, Site site, bool reads = true) {
  simt::before_atomic(p, sizeof(T), reads, site);
  const T old = exchange_with(p, change);
#if defined(FLASH_CHECKED)
  simt::after_atomic(p);
#endif
  return old;
}
#define FLASH_ATOMIC(name, result)                                                                              \
  template <class T>                                                                                            \
  FLASH_INLINE T name(T* p, same_t<T> v, Site site = Site::current()) {                                         \
    return atomic_step(p, [v](T old) { (void)old; return static_cast<T>(result); }, site);                      \
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
FLASH_INLINE T atomicExch(T* p, same_t<T> v, Site site = Site::current()) {
  return atomic_step(p, [v](T) { return v; }, site, false);
}
template <class T>
FLASH_INLINE T atomicCAS(T* p, same_t<T> compare, same_t<T> v, Site site = Site::current()) {
  return atomic_step(p, [compare, v](T old) { return to_word(old) == to_word(compare) ? v : old; }, site);
}

// ---- shared memory and the trace ----------------------------------------------------------------------------------

// The block's shared memory, of which the launch gives sizeof(S) bytes or more, as a struct. Findings name the struct.
template <class S>
FLASH_INLINE S& shared() {
  static_assert(std::is_trivially_copyable_v<S> && alignof(S) <= 1024);
  return *reinterpret_cast<S*>(simt::shared_memory(sizeof(S), __PRETTY_FUNCTION__, simt::padding_of<S>()));
}

// Begins a named region of this warp in the trace; nothing on the GPU. `label` is a string literal.
FLASH_INLINE void trace_mark(const char* label, long value = 0) { simt::mark(label, value); }

}  // namespace flash::inline FLASH_MACHINE

#include "sim/dialect/dialect_half.hpp"
