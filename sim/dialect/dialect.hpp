// dialect.hpp: CUDA's words for g++: qualifiers, built-in variables, barriers, warp operations, atomics, mathematics.
// Everything lives in this machine's inline namespace and is inlined, so that the fast and the checked build of one
// kernel never share a function. More: dialect_numbers.hpp, dialect_half.hpp. Use: "gpu/kernel.cuh", <cuda_runtime.h>.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <type_traits>

#include "sim/core/mathematics.hpp"
#include "sim/core/packed.hpp"
#include "sim/core/padding.hpp"
#include "sim/core/simt.hpp"
#include "sim/dialect/dialect_memory.hpp"
#include "sim/dialect/operations.hpp"
#include "sim/dialect/tally.hpp"

#define __global__ __attribute__((noinline))
#if !defined(FLASH_PROGRAM)  // there sim/compiler/variables.cpp takes it away
#define __host__
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) flash_launch_bounds(__VA_ARGS__)  // sim/compiler/launches.cpp makes a check of it
#define __cluster_dims__(...) flash_cluster_dims(__VA_ARGS__)    // the same
#define __grid_constant__
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
  struct name##1 { T x; };                                                                                      \
  struct alignas(a2) name##2 { T x, y; };                                                                       \
  FLASH_VECTOR_3(T, name)                                                                                       \
  struct alignas(a4) name##4 { T x, y, z, w; };                                                                 \
  FLASH_INLINE name##1 make_##name##1(T x) { return {x}; }                                                      \
  FLASH_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }                                              \
  FLASH_INLINE name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                      \
  FLASH_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define FLASH_VECTOR_3(T, name) struct name##3 { T x, y, z; };
FLASH_VECTORS(signed char, char, 2, 4)
FLASH_VECTORS(unsigned char, uchar, 2, 4)
FLASH_VECTORS(short, short, 4, 8)
FLASH_VECTORS(unsigned short, ushort, 4, 8)
FLASH_VECTORS(int, int, 8, 16)
FLASH_VECTORS(long, long, 16, 16)
FLASH_VECTORS(unsigned long, ulong, 16, 16)
FLASH_VECTORS(long long, longlong, 16, 16)
FLASH_VECTORS(unsigned long long, ulonglong, 16, 16)
FLASH_VECTORS(float, float, 8, 16)
FLASH_VECTORS(double, double, 16, 16)
#undef FLASH_VECTOR_3
#define FLASH_VECTOR_3(T, name)  // threadIdx has this type
FLASH_VECTORS(unsigned, uint, 8, 16)
#undef FLASH_VECTOR_3
#undef FLASH_VECTORS

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
using std::isnan, std::isinf, std::isfinite, std::signbit;
FLASH_INLINE float fmaxf(float a, float b) { return flash::larger(a, b); }
FLASH_INLINE float fminf(float a, float b) { return flash::smaller(a, b); }
#endif
FLASH_INLINE float __fdividef(float a, float b) { return a / b; }
FLASH_INLINE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
FLASH_INLINE float __expf(float x) { return expf(x); }
FLASH_INLINE float __logf(float x) { return __builtin_logf(x); }
FLASH_INLINE float __log2f(float x) { return __builtin_log2f(x); }
FLASH_INLINE float __log10f(float x) { return __builtin_log10f(x); }
FLASH_INLINE float __sinf(float x) { return __builtin_sinf(x); }
FLASH_INLINE float __cosf(float x) { return __builtin_cosf(x); }
FLASH_INLINE float __tanf(float x) { return __builtin_tanf(x); }
FLASH_INLINE float __powf(float x, float y) { return __builtin_powf(x, y); }
FLASH_INLINE void __sincosf(float x, float* sine, float* cosine) { *sine = __sinf(x), *cosine = __cosf(x); }
FLASH_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
FLASH_INLINE float fdividef(float a, float b) { return a / b; }
FLASH_INLINE void sincospif(float x, float* sine, float* cosine) { *sine = sinpif(x), *cosine = cospif(x); }
FLASH_INLINE void sincospi(double x, double* sine, double* cosine) { *sine = sinpi(x), *cosine = cospi(x); }
// Lengths of vectors in memory, and 1 over them.
#define FLASH_NORM(T, Wide, name, result)                                                                       \
  FLASH_INLINE T name(int dimensions, const T* p) {                                                             \
    Wide sum = 0;                                                                                               \
    for (int i = 0; i < dimensions; ++i) sum += static_cast<Wide>(p[i]) * p[i];                                 \
    return static_cast<T>(result);                                                                              \
  }
FLASH_NORM(float, double, normf, __builtin_sqrt(sum))
FLASH_NORM(float, double, rnormf, 1 / __builtin_sqrt(sum))
FLASH_NORM(double, long double, norm, __builtin_sqrtl(sum))
FLASH_NORM(double, long double, rnorm, 1 / __builtin_sqrtl(sum))
#undef FLASH_NORM
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
// Of two types: in the one that an operator would convert both to.
#define FLASH_MIN_MAX(A, B, T)                                                                                  \
  FLASH_INLINE T min(A a, B b) { return min(static_cast<T>(a), static_cast<T>(b)); }                            \
  FLASH_INLINE T max(A a, B b) { return max(static_cast<T>(a), static_cast<T>(b)); }                            \
  FLASH_INLINE T min(B a, A b) { return min(static_cast<T>(a), static_cast<T>(b)); }                            \
  FLASH_INLINE T max(B a, A b) { return max(static_cast<T>(a), static_cast<T>(b)); }
FLASH_INLINE float min(float a, float b) { return flash::smaller(a, b); }
FLASH_INLINE float max(float a, float b) { return flash::larger(a, b); }
FLASH_MIN_MAX(int, unsigned, unsigned)
FLASH_MIN_MAX(long, unsigned long, unsigned long)
FLASH_MIN_MAX(long long, unsigned long long, unsigned long long)
FLASH_MIN_MAX(float, double, double)
#undef FLASH_MIN_MAX
FLASH_INLINE unsigned umin(unsigned a, unsigned b) { return min(a, b); }
FLASH_INLINE unsigned umax(unsigned a, unsigned b) { return max(a, b); }
FLASH_INLINE long long llmin(long long a, long long b) { return min(a, b); }
FLASH_INLINE long long llmax(long long a, long long b) { return max(a, b); }
FLASH_INLINE unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
FLASH_INLINE unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }
// Loads and stores with hints to the caches, which are not modelled.
#define FLASH_LOAD(name)                                                                                        \
  template <class T>                                                                                            \
  FLASH_INLINE T name(const T* p) {                                                                             \
    return *p;                                                                                                  \
  }
FLASH_LOAD(__ldg)
FLASH_LOAD(__ldca)
FLASH_LOAD(__ldcg)
FLASH_LOAD(__ldcs)
FLASH_LOAD(__ldlu)
FLASH_LOAD(__ldcv)
#undef FLASH_LOAD
#define FLASH_STORE(name)                                                                                       \
  template <class T>                                                                                            \
  FLASH_INLINE void name(T* p, flash::same_t<T> value) {                                                        \
    *p = value;                                                                                                 \
  }
FLASH_STORE(__stwb)
FLASH_STORE(__stcg)
FLASH_STORE(__stcs)
FLASH_STORE(__stwt)
#undef FLASH_STORE

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
FLASH_INLINE void __threadfence() { flash::simt::fence(flash::simt::Scope::device); }
FLASH_INLINE void __threadfence_block() { flash::simt::fence(flash::simt::Scope::block); }
FLASH_INLINE void __threadfence_system() { flash::simt::fence(flash::simt::Scope::device); }

// ---- clusters of blocks (sim/core/cluster.hpp): in a launch without them a block is a cluster of its own ----------

// All threads of the cluster: an arrival, and the wait for all of them. What was done before an arrival is known after
// the wait.
FLASH_INLINE void __cluster_barrier_arrive(FLASH_SITE) { flash::simt::barrier_cluster_arrive(site); }
FLASH_INLINE void __cluster_barrier_wait(FLASH_SITE) { flash::simt::barrier_cluster_wait(site); }
// The same shared variable of the cluster's block of that rank.
FLASH_INLINE void* __cluster_map_shared_rank(const void* shared, unsigned rank, FLASH_SITE) {
  return flash::simt::map_shared(shared, rank, site);
}
FLASH_INLINE unsigned __clusterRelativeBlockRank() { return flash::simt::cluster_rank(); }
FLASH_INLINE unsigned __clusterSizeInBlocks() { return flash::simt::cluster_size(); }
FLASH_INLINE dim3 __clusterDim() { return flash::simt::cluster_shape(); }
FLASH_INLINE dim3 __clusterGridDimInClusters() {
  const dim3 shape = flash::simt::cluster_shape();
  return dim3(gridDim.x / shape.x, gridDim.y / shape.y, gridDim.z / shape.z);
}
FLASH_INLINE dim3 __clusterIdx() {
  const dim3 shape = flash::simt::cluster_shape();
  return dim3(blockIdx.x / shape.x, blockIdx.y / shape.y, blockIdx.z / shape.z);
}
FLASH_INLINE dim3 __clusterRelativeBlockIdx() {
  const dim3 shape = flash::simt::cluster_shape();
  return dim3(blockIdx.x % shape.x, blockIdx.y % shape.y, blockIdx.z % shape.z);
}

// ---- the thread itself --------------------------------------------------------------------------------------------

FLASH_INLINE void __trap(FLASH_SITE) { flash::simt::trap(site); }
// The host's cycles: they go on, and say nothing of a GPU's.
FLASH_INLINE long long clock64() { return flash::simt::cycles(); }
FLASH_INLINE void __prof_trigger(int) {}  // for a profiler
FLASH_INLINE void __nanosleep(unsigned, FLASH_SITE) { flash::simt::pause(site); }

// ---- warp operations ----------------------------------------------------------------------------------------------

FLASH_INLINE void __syncwarp(unsigned mask = 0xffffffffu, FLASH_SITE) {
  flash::simt::warp_op(flash::simt::WarpOp::sync, mask, 0, site);
}
FLASH_INLINE unsigned __activemask(FLASH_SITE) {
  return static_cast<unsigned>(flash::simt::warp_op(flash::simt::WarpOp::activemask, 0, 0, site));
}
#define FLASH_SHUFFLE(name, op, Param)                                                                          \
  template <class T>                                                                                            \
  FLASH_INLINE T name(unsigned mask, T value, Param param, int width = 32, FLASH_SITE) {                        \
    return flash::from_word<T>(flash::simt::warp_op(flash::simt::WarpOp::op, mask, flash::to_word(value), site, \
                                                    static_cast<unsigned>(param),                               \
                                                    static_cast<unsigned>(width)));                             \
  }
FLASH_SHUFFLE(__shfl_sync, shfl, int)
FLASH_SHUFFLE(__shfl_up_sync, shfl_up, unsigned)
FLASH_SHUFFLE(__shfl_down_sync, shfl_down, unsigned)
FLASH_SHUFFLE(__shfl_xor_sync, shfl_xor, int)
#undef FLASH_SHUFFLE
#define FLASH_VOTE(Result, name, op)                                                                            \
  FLASH_INLINE Result name(unsigned mask, int predicate, FLASH_SITE) {                                          \
    return static_cast<Result>(                                                                                 \
        flash::simt::warp_op(flash::simt::WarpOp::op, mask, predicate != 0, site));                             \
  }
FLASH_VOTE(unsigned, __ballot_sync, ballot)
FLASH_VOTE(int, __any_sync, any)
FLASH_VOTE(int, __all_sync, all)
#undef FLASH_VOTE
template <class T>
FLASH_INLINE unsigned __match_any_sync(unsigned mask, T value, FLASH_SITE) {
  return static_cast<unsigned>(
      flash::simt::warp_op(flash::simt::WarpOp::match_any, mask, flash::to_word(value), site));
}
// All lanes have the same value: the mask, else 0.
template <class T>
FLASH_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all_match, FLASH_SITE) {
  *all_match = __match_any_sync(mask, value, site) == mask;
  return *all_match ? mask : 0;
}
#define FLASH_REDUCE(T, name, op)                                                                               \
  FLASH_INLINE T name(unsigned mask, T value, FLASH_SITE) {                                                     \
    return flash::from_word<T>(                                                                                 \
        flash::simt::warp_op(flash::simt::WarpOp::op, mask, flash::to_word(value), site));                      \
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

// Each also for one block (_block) and with the host (_system), which is taken for the device. `reads`: the old value
// matters. `adds`: of floating-point numbers it is an addition, whose order matters.
#define FLASH_ATOMIC(name, reads, adds, result)                                                                 \
  FLASH_ATOMIC_OF(name, device, reads, adds, result)                                                            \
  FLASH_ATOMIC_OF(name##_block, block, reads, adds, result)                                                     \
  FLASH_ATOMIC_OF(name##_system, device, reads, adds, result)
#define FLASH_ATOMIC_OF(name, scope, reads, adds, result)                                                       \
  template <class T>                                                                                            \
  FLASH_INLINE T name(T* p, flash::same_t<T> v, FLASH_SITE) {                                                   \
    const auto change = [p, v](T old) { (void)p, (void)old; return static_cast<T>(result); };                   \
    return flash::atomic_step(p, change, flash::simt::Scope::scope, site, reads, adds);                         \
  }
FLASH_ATOMIC(atomicAdd, true, flash::added_bytes<T>(), flash::atomic_sum(p, old, v))
FLASH_ATOMIC(atomicSub, true, flash::added_bytes<T>(), old - v)
FLASH_ATOMIC(atomicMin, true, 0, v < old ? v : old)
FLASH_ATOMIC(atomicMax, true, 0, old < v ? v : old)
FLASH_ATOMIC(atomicAnd, true, 0, old & v)
FLASH_ATOMIC(atomicOr, true, 0, old | v)
FLASH_ATOMIC(atomicXor, true, 0, old ^ v)
FLASH_ATOMIC(atomicInc, true, 0, old >= v ? T{0} : old + 1)
FLASH_ATOMIC(atomicDec, true, 0, old == 0 || old > v ? v : old - 1)
FLASH_ATOMIC(atomicExch, false, 0, v)
#undef FLASH_ATOMIC
#undef FLASH_ATOMIC_OF
#define FLASH_ATOMIC_CAS(name, scope)                                                                           \
  template <class T>                                                                                            \
  FLASH_INLINE T name(T* p, flash::same_t<T> compare, flash::same_t<T> v, FLASH_SITE) {                         \
    const auto change = [compare, v](T old) {                                                                   \
      return flash::to_word(old) == flash::to_word(compare) ? v : old;                                          \
    };                                                                                                          \
    return flash::atomic_step(p, change, flash::simt::Scope::scope, site, true);                                \
  }
FLASH_ATOMIC_CAS(atomicCAS, device)
FLASH_ATOMIC_CAS(atomicCAS_block, block)
FLASH_ATOMIC_CAS(atomicCAS_system, device)
#undef FLASH_ATOMIC_CAS
// Vectors are atomic element by element, in global memory only; compute capability 9.0.
FLASH_INLINE float2 atomicAdd(float2* p, float2 v, FLASH_SITE) {
  flash::begin_vector_add(p, sizeof v, site);
  const float2 old = {flash::add_in_vector(&p->x, v.x), flash::add_in_vector(&p->y, v.y)};
  flash::end_vector_add(p);
  return old;
}
FLASH_INLINE float4 atomicAdd(float4* p, float4 v, FLASH_SITE) {
  flash::begin_vector_add(p, sizeof v, site);
  const float4 old = {flash::add_in_vector(&p->x, v.x), flash::add_in_vector(&p->y, v.y),
                      flash::add_in_vector(&p->z, v.z), flash::add_in_vector(&p->w, v.w)};
  flash::end_vector_add(p);
  return old;
}

FLASH_WORDS_END

#include "sim/dialect/dialect_numbers.hpp"

#include "sim/dialect/dialect_half.hpp"
