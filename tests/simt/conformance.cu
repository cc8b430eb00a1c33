// conformance.cu: one test kernel per family of intrinsics; each writes its results as 32-bit words.
// The same text runs on every machine, and the words must be the same bits as an H200's (conformance.hpp).
// Warp reductions and the forms of bfloat16 need compute capability 8.0.
// Run: simt_conformance_test (against docs/results/conformance-h200.txt); record.cpp makes that file on a GPU.
#include <cmath>

#include "tests/simt/conformance.cuh"

namespace flash::inline FLASH_MACHINE {

constexpr unsigned all_lanes = 0xffffffffu;

// ---- Warps: shuffles, votes, reductions ------------------------------------------------------------------------

// Each width, each distance (also beyond the warp), four modes; one warp. Words per value: sizeof(T) / 4.
template <class T>
__global__ void shuffles(T* out /*[6][36][4][32]*/) {
  const unsigned lane = threadIdx.x;
  T value;
  if constexpr (sizeof(T) == 8)
    value = static_cast<T>(mix(lane)) << 32 | mix(lane + 100);
  else
    value = static_cast<T>(mix(lane) >> 1);
  for (int w = 0; w < 6; ++w)
    for (int distance = 0; distance < 36; ++distance) {
      const int width = 1 << w;
      T* row = out + (w * 36 + distance) * 128 + lane;
      row[0] = __shfl_sync(all_lanes, value, distance, width);
      row[32] = __shfl_up_sync(all_lanes, value, static_cast<unsigned>(distance), width);
      row[64] = __shfl_down_sync(all_lanes, value, static_cast<unsigned>(distance), width);
      row[96] = __shfl_xor_sync(all_lanes, value, distance, width);
    }
}

// The lane that is the (k mod size)-th of the mask.
__device__ inline int pick_lane(unsigned mask, int k) {
  k %= __popc(mask);
  for (int lane = 0;; ++lane)
    if (mask >> lane & 1u)
      if (k-- == 0) return lane;
}

// 64 masks, lanes outside skip; neighbouring masks overlap, so lanes run ahead of each other.
__global__ void shuffle_masks(unsigned* out /*[64][32]*/) {
  const unsigned lane = threadIdx.x;
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned mask = mix(1000 + i) | 1u << (i % 32);
    if (mask >> lane & 1u)
      out[i * 32 + lane] = __shfl_sync(mask, mix(i * 32 + lane), pick_lane(mask, static_cast<int>(lane + i)));
  }
}

__global__ void votes(unsigned* out /*[64][3][32]*/) {
  const unsigned lane = threadIdx.x;
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned mask = i == 0 ? all_lanes : mix(2000 + i) | 1u << (i % 32);
    const unsigned bits = i % 3 == 0 ? all_lanes : i % 3 == 1 ? 0u : mix(3000 + i);  // all true, all false, mixed
    if (mask >> lane & 1u) {
      unsigned* row = out + i * 96 + lane;
      row[0] = __ballot_sync(mask, bits >> lane & 1u);
      row[32] = static_cast<unsigned>(__any_sync(mask, bits >> lane & 1u) != 0);
      row[64] = static_cast<unsigned>(__all_sync(mask, bits >> lane & 1u) != 0);
    }
  }
}

__global__ void warp_reductions(unsigned* out /*[64][8][32]*/) {
  const unsigned lane = threadIdx.x;
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned mask = i == 0 ? all_lanes : mix(4000 + i) | 1u << (i % 32);
    const unsigned value = mix(i * 32 + lane);
    if (mask >> lane & 1u) {
      unsigned* row = out + i * 256 + lane;
      row[0] = __reduce_add_sync(mask, value);
      row[32] = __reduce_min_sync(mask, value);
      row[64] = __reduce_max_sync(mask, value);
      row[96] = __reduce_and_sync(mask, value);
      row[128] = __reduce_or_sync(mask, value);
      row[160] = __reduce_xor_sync(mask, value);
      row[192] = static_cast<unsigned>(__reduce_min_sync(mask, static_cast<int>(value)));
      row[224] = static_cast<unsigned>(__reduce_max_sync(mask, static_cast<int>(value)));
    }
  }
}

__global__ void matches(unsigned* out /*[64][2][32]*/) {
  const unsigned lane = threadIdx.x;
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned mask = i == 0 ? all_lanes : mix(4500 + i) | 1u << (i % 32);
    const unsigned value = mix(i * 32 + lane) % (1 + i % 8);
    if (mask >> lane & 1u) {
      out[i * 64 + lane] = __match_any_sync(mask, value);
      out[i * 64 + 32 + lane] = __match_any_sync(mask, static_cast<unsigned long long>(value) << 40);
    }
  }
}

// Who am I: 3-D grid (2, 3, 2), 3-D block (5, 3, 3) = 45 threads = one full warp and one of 13 lanes.
__global__ void geometry(unsigned* out /*[12][45][4]*/) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned mask = thread < 32 ? all_lanes : 0x1fffu;
  unsigned* row = out + (block * 45 + thread) * 4;
  row[0] = threadIdx.x | threadIdx.y << 4 | threadIdx.z << 8 | blockIdx.x << 12 | blockIdx.y << 16 | blockIdx.z << 20;
  row[1] = __activemask();
  row[2] = __shfl_sync(mask, thread, 7);
  row[3] = __ballot_sync(mask, thread & 1u);
}

// ---- Blocks: voting barriers, atomics --------------------------------------------------------------------------

__global__ void barrier_votes(unsigned* out /*[16][3][96]*/) {
  const unsigned t = threadIdx.x;
  for (unsigned i = 0; i < 16; ++i) {
    const int p = i == 0 ? 1 : i == 1 ? 0 : static_cast<int>(mix(5000 + i * 96 + t) % i == 0);
    out[i * 288 + t] = static_cast<unsigned>(__syncthreads_count(p));
    out[i * 288 + 96 + t] = static_cast<unsigned>(__syncthreads_and(p) != 0);
    out[i * 288 + 192 + t] = static_cast<unsigned>(__syncthreads_or(p) != 0);
  }
}

struct AtomicCells {
  unsigned u[10];
  int i[3];
  float f;
  double d;
  unsigned long long wide;
  unsigned returned[3];
};

// Each cell's final value, and sums of returned values, do not depend on the order of the threads.
__device__ inline void use_atomics(AtomicCells& c, unsigned t) {
  const unsigned value = mix(6000 + t);
  atomicAdd(&c.u[0], value);
  atomicSub(&c.u[1], value);
  atomicMin(&c.u[2], value);
  atomicMax(&c.u[3], value);
  atomicAnd(&c.u[4], value | 0x00f00f00u);
  atomicOr(&c.u[5], value & 0x11111111u);
  atomicXor(&c.u[6], value);
  atomicInc(&c.u[7], 6u);
  atomicDec(&c.u[8], 10u);
  unsigned seen = atomicCAS(&c.u[9], 0u, 0u), assumed;
  do {
    assumed = seen;
    seen = atomicCAS(&c.u[9], assumed, assumed * 5u + 1u);
  } while (seen != assumed);
  atomicAdd(&c.i[0], static_cast<int>(value));
  atomicMin(&c.i[1], static_cast<int>(value));
  atomicMax(&c.i[2], static_cast<int>(value));
  atomicAdd(&c.f, static_cast<float>(value & 0xffu));
  atomicAdd(&c.d, static_cast<double>(value));
  atomicAdd(&c.wide, static_cast<unsigned long long>(value) << 8);
  atomicXor(&c.returned[1], atomicAdd(&c.returned[0], 3u));      // xor of 0, 3, 6, …
  atomicXor(&c.returned[1], atomicExch(&c.returned[2], value));  // each value is returned once, but the last
}

__device__ inline void clear_atomics(AtomicCells& c) {
  for (int k = 0; k < 10; ++k) c.u[k] = k == 2 || k == 4 ? 0xffffffffu : 0u;
  for (int k = 0; k < 3; ++k) c.i[k] = 0;
  for (int k = 0; k < 3; ++k) c.returned[k] = 0;
  c.f = 0;
  c.d = 0;
  c.wide = 0;
}

__device__ inline void report_atomics(const AtomicCells& c, unsigned* out /*[20]*/) {
  for (int k = 0; k < 10; ++k) out[k] = c.u[k];
  for (int k = 0; k < 3; ++k) out[10 + k] = static_cast<unsigned>(c.i[k]);
  out[13] = __float_as_uint(c.f);
  out[14] = static_cast<unsigned>(c.wide);
  out[15] = static_cast<unsigned>(c.wide >> 32);
  out[16] = c.returned[0];
  out[17] = c.returned[1] ^ c.returned[2];
  out[18] = static_cast<unsigned>(__double_as_longlong(c.d) >> 32);
  out[19] = static_cast<unsigned>(__double_as_longlong(c.d));
}

__global__ void atomics_shared(unsigned* out /*[2][20]*/) {
  AtomicCells& c = shared<AtomicCells>();
  if (threadIdx.x == 0) clear_atomics(c);
  __syncthreads();
  use_atomics(c, blockIdx.x * blockDim.x + threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) report_atomics(c, out + blockIdx.x * 20);
}

__global__ void atomics_clear(AtomicCells* c) {
  clear_atomics(*c);
}
__global__ void atomics_use(AtomicCells* c) {
  use_atomics(*c, blockIdx.x * blockDim.x + threadIdx.x);
}
__global__ void atomics_report(const AtomicCells* c, unsigned* out) {
  report_atomics(*c, out);
}

// ---- 16-bit numbers: conversions -------------------------------------------------------------------------------

struct Half {
  using T = __half;
  using Pair = __half2;
  static __device__ T from_bits(unsigned b) { return __ushort_as_half(static_cast<unsigned short>(b)); }
  static __device__ unsigned bits(T x) { return __half_as_ushort(x); }
  static __device__ float widen(T x) { return __half2float(x); }
  static __device__ T narrow(float x) { return __float2half_rn(x); }
};

struct Bfloat16 {
  using T = __nv_bfloat16;
  using Pair = __nv_bfloat162;
  static __device__ T from_bits(unsigned b) { return __ushort_as_bfloat16(static_cast<unsigned short>(b)); }
  static __device__ unsigned bits(T x) { return __bfloat16_as_ushort(x); }
  static __device__ float widen(T x) { return __bfloat162float(x); }
  static __device__ T narrow(float x) { return __float2bfloat16_rn(x); }
};

// All 65,536 patterns to float.
template <class N>
__global__ void widen_all(unsigned* out /*[65536]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = __float_as_uint(N::widen(N::from_bits(i)));
}

// Between each fp16 and the next larger: the exact tie, and one float below and above it. Then 2^16 mixed floats.
__global__ void narrow_half(unsigned* out /*[65536][4]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned magnitude = i & 0x7fffu;
  // fp16 counts on past 65504 as if 65536 were finite: the tie with it is 65520, from where infinity begins.
  const float here =
      magnitude < 0x7c00u ? __half2float(__ushort_as_half(static_cast<unsigned short>(magnitude))) : 65536.0f;
  const float next =
      magnitude < 0x7bffu ? __half2float(__ushort_as_half(static_cast<unsigned short>(magnitude + 1))) : 65536.0f;
  const unsigned tie = __float_as_uint(0.5f * (here + next)) | (i & 0x8000u) << 16;
  for (unsigned k = 0; k < 3; ++k) out[i * 4 + k] = Half::bits(Half::narrow(__uint_as_float(tie + k - 1)));
  out[i * 4 + 3] = Half::bits(Half::narrow(__uint_as_float(mix(i))));
}

// For each bf16 pattern as upper half: the tie, one below, one above (NaN patterns included), a mixed lower half.
__global__ void narrow_bfloat16(unsigned* out /*[65536][4]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  for (unsigned k = 0; k < 3; ++k)
    out[i * 4 + k] = Bfloat16::bits(Bfloat16::narrow(__uint_as_float(i << 16 | (0x7fffu + k))));
  out[i * 4 + 3] = Bfloat16::bits(Bfloat16::narrow(__uint_as_float(i << 16 | mix(i) >> 16)));
}

// ---- 16-bit numbers: arithmetic --------------------------------------------------------------------------------

template <class N>
__device__ void arithmetic(typename N::T a, typename N::T b, typename N::T c, unsigned* out /*[10]*/) {
  out[0] = N::bits(__hadd(a, b));
  out[1] = N::bits(__hsub(a, b));
  out[2] = N::bits(__hmul(a, b));
  out[3] = N::bits(__hfma(a, b, c));
  out[4] = N::bits(__hmax(a, b));
  out[5] = N::bits(__hmin(a, b));
  out[6] = N::bits(__hneg(a));
  out[7] = N::bits(__habs(a));
  out[8] = N::bits(__hdiv(a, b));
  out[9] = static_cast<unsigned>(__hlt(a, b)) | static_cast<unsigned>(__hle(a, b)) << 1 |
           static_cast<unsigned>(__hgt(a, b)) << 2 | static_cast<unsigned>(__hge(a, b)) << 3 |
           static_cast<unsigned>(__heq(a, b)) << 4 | static_cast<unsigned>(__hne(a, b)) << 5;
}

// Every pair of 64 hand-picked patterns (zeros, denormals, ties, limits, infinities, NaN).
template <class N>
__global__ void arithmetic_special(const unsigned* patterns /*[64]*/, unsigned* out /*[64][64][10]*/) {
  const unsigned a = blockIdx.x, b = threadIdx.x;
  arithmetic<N>(N::from_bits(patterns[a]), N::from_bits(patterns[b]), N::from_bits(patterns[(a + 5 * b + 17) % 64]),
                out + (a * 64 + b) * 10);
}

// 2^14 random triples whose exponents lie close together, so that every rounding rule is exercised.
template <class N>
__global__ void arithmetic_random(unsigned mantissa_mask, unsigned base, unsigned* out /*[16384][10]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned a = (mix(3 * i) & (0x8000u | mantissa_mask)) + base;
  const unsigned b = (mix(3 * i + 1) & (0x8000u | mantissa_mask)) + base;
  const unsigned c = (mix(3 * i + 2) & (0x8000u | mantissa_mask)) + base;
  arithmetic<N>(N::from_bits(a), N::from_bits(b), N::from_bits(c), out + i * 10);
}

__device__ inline unsigned word(__half2 v) {
  return Half::bits(__low2half(v)) | Half::bits(__high2half(v)) << 16;
}
__device__ inline unsigned word(__nv_bfloat162 v) {
  return Bfloat16::bits(__low2bfloat16(v)) | Bfloat16::bits(__high2bfloat16(v)) << 16;
}

// Pairs: each half of a pair must behave as the scalar does.
__global__ void half2_arithmetic(unsigned* out /*[4096][10]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  __half2 v[3];
  for (unsigned k = 0; k < 3; ++k) {
    const unsigned bits = mix(7000 + 3 * i + k);
    v[k] =
        __halves2half2(Half::from_bits(0x3000u + (bits & 0x8fffu)), Half::from_bits(0x3000u + (bits >> 16 & 0x8fffu)));
  }
  unsigned* row = out + i * 10;
  row[0] = word(__hadd2(v[0], v[1]));
  row[1] = word(__hmul2(v[0], v[1]));
  row[2] = word(__hfma2(v[0], v[1], v[2]));
  const float2 wide = __half22float2(v[0]);
  row[3] = __float_as_uint(wide.x) ^ __float_as_uint(wide.y) >> 1;
  row[4] = word(__float22half2_rn(make_float2(wide.x * 1.001f, wide.y * 1.001f)));
  row[5] = word(__floats2half2_rn(wide.y * 0.999f, wide.x * 0.999f));
  row[6] = word(__hmax2(v[0], v[1])) ^ word(__hsub2(v[0], v[1]));
  row[7] = __float_as_uint(__low2float(v[0])) ^ __float_as_uint(__high2float(v[0])) >> 3 ^
           word(__half2half2(__low2half(v[1])));
  const __half a = __low2half(v[0]), b = __low2half(v[1]);
  __half sum = a + b;
  sum += a * b;
  row[8] = Half::bits(sum) | Half::bits((a - b) / b) << 16;
  row[9] = word(__float2half2_rn(wide.x)) ^ static_cast<unsigned>(a < b) ^ static_cast<unsigned>(a == -b) << 1;
}

__global__ void bfloat162_arithmetic(unsigned* out /*[4096][10]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  __nv_bfloat162 v[3];
  for (unsigned k = 0; k < 3; ++k) {
    const unsigned bits = mix(8000 + 3 * i + k);
    v[k] = __halves2bfloat162(Bfloat16::from_bits(0x3e00u + (bits & 0x81ffu)),
                              Bfloat16::from_bits(0x3e00u + (bits >> 16 & 0x81ffu)));
  }
  unsigned* row = out + i * 10;
  row[0] = word(__hadd2(v[0], v[1]));
  row[1] = word(__hmul2(v[0], v[1]));
  row[2] = word(__hfma2(v[0], v[1], v[2]));
  const float2 wide = __bfloat1622float2(v[0]);
  row[3] = __float_as_uint(wide.x) ^ __float_as_uint(wide.y) >> 1;
  row[4] = word(__float22bfloat162_rn(make_float2(wide.x * 1.001f, wide.y * 1.001f)));
  row[5] = word(__floats2bfloat162_rn(wide.y * 0.999f, wide.x * 0.999f));
  row[6] = word(__hmax2(v[0], v[1])) ^ word(__hsub2(v[0], v[1]));
  row[7] = __float_as_uint(__low2float(v[0])) ^ __float_as_uint(__high2float(v[0])) >> 3 ^
           word(__bfloat162bfloat162(__low2bfloat16(v[1])));
  const __nv_bfloat16 a = __low2bfloat16(v[0]), b = __low2bfloat16(v[1]);
  __nv_bfloat16 sum = a + b;
  sum += a * b;
  row[8] = Bfloat16::bits(sum) | Bfloat16::bits((a - b) / b) << 16;
  row[9] = word(__float2bfloat162_rn(wide.x)) ^ static_cast<unsigned>(a < b) ^ static_cast<unsigned>(a == -b) << 1;
}

// What a program writes without intrinsics: numbers that become halfs and back, by name, by assignment, by braces.
template <class N>
__global__ void half_forms(unsigned* out /*[4096][16]*/) {
  using T = typename N::T;
  using Pair = typename N::Pair;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, pattern = mix(9000 + i) & 0xffffu;
  const T any = N::from_bits(pattern), h = any == any ? any : T(1.0f);
  const float x = N::widen(h) * 1.001f;
  const double wide = 1 + pattern * 0x1p-20;
  const int whole = static_cast<int>(mix(i)) >> i % 32;
  unsigned* row = out + i * 16;
  T assigned;
  assigned = x;
  row[0] = N::bits(T(x)) | N::bits(static_cast<T>(wide)) << 16;
  row[1] = N::bits(assigned) | N::bits(T{whole}) << 16;
  assigned = static_cast<unsigned>(whole);
  const T made = static_cast<unsigned long long>(i) << i % 40;
  row[2] = N::bits(assigned) | N::bits(made) << 16;
  const float back = h;
  row[3] = __float_as_uint(back);
  row[4] = static_cast<unsigned>(static_cast<int>(any)) ^ static_cast<unsigned>(any) << 1;
  row[5] = static_cast<unsigned>(static_cast<short>(any)) << 16 | static_cast<unsigned short>(any);
  row[6] = static_cast<unsigned>(static_cast<signed char>(any)) << 8 | static_cast<unsigned char>(any);
  const long long large = any;
  const unsigned long long positive = any;
  row[7] = static_cast<unsigned>(large) ^ static_cast<unsigned>(large >> 32) << 1;
  row[8] = static_cast<unsigned>(positive) ^ static_cast<unsigned>(positive >> 32) << 1;
  T up = h, down = h;
  const T before = up++;
  --down;
  row[9] = N::bits(up) | N::bits(down) << 16;
  T quotient = before, difference = h;
  quotient /= T(3), difference -= T(x);
  row[10] = N::bits(quotient) | N::bits(difference) << 16;
  row[11] = N::bits(-h) | N::bits(+before) << 16;
  row[12] = (any ? 1u : 0u) | (any != any ? 2u : 0u) | (any < up ? 4u : 0u) | (any >= down ? 8u : 0u);
  const Pair a(h, up), b = {down, h};
  Pair c = a;
  c += b;
  row[13] = word(c);
  c *= b, c -= a;
  ++c;
  row[14] = word(c);
  row[15] = (a == b ? 1u : 0u) | (a != b ? 2u : 0u) | (a > b ? 4u : 0u) | (a <= b ? 8u : 0u) | N::bits(-b.x) << 16;
}

// ---- float -----------------------------------------------------------------------------------------------------

// A float's bits, with one pattern for all NaN: their payload differs between processors and means nothing here.
__device__ inline unsigned float_bits(float x) {
  return x != x ? 0x7fc00000u : __float_as_uint(x);
}

__device__ inline void float_operations(float a, float b, float c, unsigned* out /*[8]*/) {
  out[0] = float_bits(a + b);
  out[1] = float_bits(a * b);
  out[2] = float_bits(fmaf(a, b, c));
  out[3] = float_bits(a / b);
  out[4] = float_bits(sqrtf(a));
  out[5] = float_bits(fmaxf(a, b));
  out[6] = float_bits(fminf(a, b));
  out[7] = static_cast<unsigned>(a < b) | static_cast<unsigned>(a <= b) << 1 | static_cast<unsigned>(a == b) << 2;
}

__global__ void float_special(const unsigned* patterns /*[48]*/, unsigned* out /*[48][48][8]*/) {
  const unsigned a = blockIdx.x, b = threadIdx.x;
  float_operations(__uint_as_float(patterns[a]), __uint_as_float(patterns[b]),
                   __uint_as_float(patterns[(a + 5 * b + 17) % 48]), out + (a * 48 + b) * 8);
}

__global__ void float_random(unsigned* out /*[16384][8]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float v[3];
  for (unsigned k = 0; k < 3; ++k)  // exponents from 2^-8 to 2^7
    v[k] = __uint_as_float((mix(9000 + 3 * i + k) & 0x87ffffffu) + 0x3b800000u);
  float_operations(v[0], v[1], v[2], out + i * 8);
}

// Conversions between float and integers. A cast outside the integer's range is nothing that C++ defines, the
// intrinsics saturate; so the casts stay inside, the intrinsics see everything.
__global__ void float_integer(unsigned* out /*[1024][10]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = (static_cast<float>(mix(i) & 0xffffu) - 32768.0f) / 8.0f;  // with ties at .5
  const float wild = __uint_as_float(mix(i + 1024));
  unsigned* row = out + i * 10;
  row[0] = static_cast<unsigned>(static_cast<int>(x));
  row[1] = static_cast<unsigned>(__float2int_rn(x));
  row[2] = static_cast<unsigned>(__float2int_rd(x)) ^ static_cast<unsigned>(__float2int_ru(x)) << 16;
  row[3] = static_cast<unsigned>(__float2int_rz(wild));
  row[4] = static_cast<unsigned>(__float2int_rn(wild));
  row[5] = __float_as_uint(__uint2float_rn(mix(i)));
  row[6] = __float_as_uint(__int2float_rn(static_cast<int>(mix(i))));
  row[7] = __float_as_uint(floorf(x)) ^ __float_as_uint(ceilf(x)) << 1;
  row[8] = __float_as_uint(rintf(x));
  row[9] = __float_as_uint(static_cast<float>(mix(i) >> 3));
}

// Double fmaf, and float operations by name.
__global__ void rounded_by_name(unsigned* out /*[1024][8]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float v[3];
  for (unsigned k = 0; k < 3; ++k) v[k] = __uint_as_float((mix(11000 + 3 * i + k) & 0x07ffffffu) + 0x3b800000u);
  unsigned* row = out + i * 8;
  row[0] = __float_as_uint(__fmaf_rn(v[0], v[1], v[2]));
  row[1] = __float_as_uint(__fadd_rn(v[0], v[1]));
  row[2] = __float_as_uint(__fsub_rn(v[0], v[1]));
  row[3] = __float_as_uint(__fmul_rn(v[0], v[1]));
  row[4] = __float_as_uint(__fdiv_rn(v[0], v[1]));
  row[5] = __float_as_uint(__frcp_rn(v[0])) ^ __float_as_uint(__fsqrt_rn(v[1]));
  const long long wide = __double_as_longlong(
      fma(static_cast<double>(v[0]) / 3.0, static_cast<double>(v[1]) / 7.0, static_cast<double>(-v[2]) / 11.0));
  row[6] = static_cast<unsigned>(wide);
  row[7] = static_cast<unsigned>(wide >> 32);
}

// Functions that may differ in the last places: the words are the floats themselves.
enum class Function { exp2, exp, fast_exp, log, fast_log, log2, rsqrt, fast_divide };

template <Function function>
__global__ void float_function(const float* in /*[n]*/, float* out /*[n]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (function == Function::exp2) out[i] = exp2f(in[i]);
  if constexpr (function == Function::exp) out[i] = expf(in[i]);
  if constexpr (function == Function::fast_exp) out[i] = __expf(in[i]);
  if constexpr (function == Function::log) out[i] = logf(in[i]);
  if constexpr (function == Function::fast_log) out[i] = __logf(in[i]);
  if constexpr (function == Function::fast_divide) out[i] = __fdividef(1.0f, in[i]);
  if constexpr (function == Function::log2) out[i] = log2f(in[i]);
  if constexpr (function == Function::rsqrt) out[i] = rsqrtf(in[i]);
}

// ---- Integers, vectors -----------------------------------------------------------------------------------------

__global__ void integers(unsigned* out /*[1024][8]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned a = i == 0 ? 0u : mix(i) >> (i % 33 == 32 ? 31 : i % 33), b = mix(i + 5000);
  const unsigned long long wide = i < 2 ? 0ull : (static_cast<unsigned long long>(mix(i + 9000)) << 32 | b) >> i % 64;
  unsigned* row = out + i * 8;
  row[0] = static_cast<unsigned>(__popc(a));
  row[1] = static_cast<unsigned>(__clz(static_cast<int>(a)));
  row[2] = static_cast<unsigned>(__ffs(static_cast<int>(a)));
  row[3] = __brev(a);
  row[4] = static_cast<unsigned>(__popcll(wide));
  row[5] = static_cast<unsigned>(__clzll(static_cast<long long>(wide)));
  row[6] = static_cast<unsigned>(__ffsll(static_cast<long long>(wide)));
  row[7] = static_cast<unsigned>(min(static_cast<int>(a), static_cast<int>(b))) ^ max(a, b);
}

__global__ void vectors(const float4* in /*[64]*/, uint4* out /*[64]*/, float2* pairs /*[64]*/) {
  const unsigned i = threadIdx.x;
  const float4 v = in[63 - i];
  out[i] = make_uint4(__float_as_uint(v.w), __float_as_uint(v.z), __float_as_uint(v.y), __float_as_uint(v.x));
  pairs[i] = make_float2(v.x + v.y, v.z - v.w);
}

// ---- Host side -------------------------------------------------------------------------------------------------

// Moves the NaN results of a 16-bit family into a family of their own, so that different payloads show alone.
// The words at `stride * i + skip…` are not numbers (comparison flags) and stay.
std::vector<Family> split_nan(Family family, unsigned infinity, std::size_t stride = 1, std::size_t flags = 1) {
  Family nan{family.name + "_nan_bits", {}, 0};
  for (std::size_t i = 0; i < family.words.size(); ++i) {
    std::uint32_t& w = family.words[i];
    if (i % stride == flags || (w & 0x7fffffffu & (infinity > 0xffffu ? ~0u : 0x7fffu)) <= infinity) continue;
    nan.words.push_back(w);
    w = 0xffffffffu;
  }
  return {std::move(family), std::move(nan)};
}

// 64 patterns of a 16-bit type with `fraction` fraction bits: 32 magnitudes with both signs.
std::vector<std::uint32_t> special_patterns16(int fraction) {
  const std::uint32_t one = fraction == 10 ? 0x3c00u : 0x3f80u, infinity = fraction == 10 ? 0x7c00u : 0x7f80u;
  const std::uint32_t step = 1u << fraction;
  const std::uint32_t magnitudes[32] = {0,
                                        1,
                                        2,
                                        3,
                                        step / 2,
                                        step - 1,
                                        step,
                                        step + 1,
                                        2 * step,
                                        3 * step + 1,
                                        one / 2,
                                        one / 2 + 1,
                                        one - 2 * step,
                                        one - step,
                                        one - step + 1,
                                        one - 2,
                                        one - 1,
                                        one,
                                        one + 1,
                                        one + 2,
                                        one + 3,
                                        one + step,
                                        one + step + step / 2,
                                        one + 4 * step + 5,
                                        one + 10 * step,
                                        one + 11 * step + 1,
                                        infinity - step,
                                        infinity - 2,
                                        infinity - 1,
                                        infinity,
                                        infinity + 1,
                                        infinity + step / 2 + 3};
  std::vector<std::uint32_t> patterns;
  for (std::uint32_t magnitude : magnitudes) {
    patterns.push_back(magnitude);
    patterns.push_back(magnitude | 0x8000u);
  }
  return patterns;
}

std::vector<std::uint32_t> special_patterns32() {
  const std::uint32_t magnitudes[24] = {0,           1,           2,           0x3fffffu,   0x7fffffu,   0x800000u,
                                        0x800001u,   0x1000000u,  0x1f800000u, 0x20000000u, 0x33800000u, 0x3effffffu,
                                        0x3f000000u, 0x3f7fffffu, 0x3f800000u, 0x3f800001u, 0x3fc00000u, 0x40490fdbu,
                                        0x4b000000u, 0x5f800000u, 0x7f7ffffeu, 0x7f7fffffu, 0x7f800000u, 0x7fc00000u};
  std::vector<std::uint32_t> patterns;
  for (std::uint32_t magnitude : magnitudes) {
    patterns.push_back(magnitude);
    patterns.push_back(magnitude | 0x80000000u);
  }
  return patterns;
}

// 256 inputs evenly over [from, to], results as floats with a tolerance in units in the last place.
template <Function function>
Family float_family(Machine& m, const char* name, float from, float to, int max_ulp) {
  float inputs[256];
  for (int i = 0; i < 256; ++i) inputs[i] = std::fma(to - from, static_cast<float>(i) / 255.0f, from);
  const Array<float> in = m.upload("inputs", inputs, 256);
  const float* pointer = in.data();
  Family family = collect<float>(m, name, 256, dim3(4), dim3(64), float_function<function>, pointer);
  family.max_ulp = max_ulp;
  return family;
}

std::vector<Family> run_conformance(const MachineOptions& options) {
  Machine m(options);
  std::vector<Family> all;
  const auto add = [&all](std::vector<Family> families) {
    for (Family& family : families) all.push_back(std::move(family));
  };
  const auto u32 = [&]<class... P>(const char* name, std::size_t words, dim3 grid, dim3 block, void (*kernel)(P...),
                                   auto... arguments) {
    return collect<unsigned>(m, name, words, grid, block, kernel, arguments...);
  };

  // Warps
  add({u32("shuffle_unsigned", 6 * 36 * 128, dim3(1), dim3(32), shuffles<unsigned>)});
  add({collect<int>(m, "shuffle_int", 6 * 36 * 128, dim3(1), dim3(32), shuffles<int>)});
  add({collect<float>(m, "shuffle_float", 6 * 36 * 128, dim3(1), dim3(32), shuffles<float>)});
  add({collect<unsigned long long>(m, "shuffle_64_bit", 2 * 6 * 36 * 128, dim3(1), dim3(32),
                                   shuffles<unsigned long long>)});
  add({u32("shuffle_masks", 64 * 32, dim3(1), dim3(32), shuffle_masks)});
  add({u32("votes", 64 * 96, dim3(1), dim3(32), votes)});
  add({u32("warp_reductions", 64 * 256, dim3(1), dim3(32), warp_reductions)});
  add({u32("matches", 64 * 64, dim3(1), dim3(32), matches)});
  add({u32("geometry", 12 * 45 * 4, dim3(2, 3, 2), dim3(5, 3, 3), geometry)});

  // Blocks
  add({u32("barrier_votes", 16 * 288, dim3(1), dim3(96), barrier_votes)});
  {
    Family family{"atomics_shared", std::vector<std::uint32_t>(2 * 20), 0};
    const Array<std::uint32_t> out = m.upload("atomics_shared", family.words.data(), family.words.size());
    launch<AtomicCells>(m, atomics_shared, dim3(2), dim3(96), out.data());
    m.download(family.words.data(), out);
    add({family});
    const Array<AtomicCells> cells = m.alloc<AtomicCells>("cells", 1);
    launch(m, atomics_clear, dim3(1), dim3(1), cells.data());
    launch(m, atomics_use, dim3(3), dim3(96), cells.data());
    const AtomicCells* pointer = cells.data();
    add({u32("atomics_global", 20, dim3(1), dim3(1), atomics_report, pointer)});
  }

  // 16-bit numbers
  add(split_nan(u32("half_to_float", 65536, dim3(256), dim3(256), widen_all<Half>), 0x7f800000u, 1));
  add(split_nan(u32("bfloat16_to_float", 65536, dim3(256), dim3(256), widen_all<Bfloat16>), 0x7f800000u, 1));
  add(split_nan(u32("float_to_half", 4 * 65536, dim3(256), dim3(256), narrow_half), 0x7c00u, 1));
  add(split_nan(u32("float_to_bfloat16", 4 * 65536, dim3(256), dim3(256), narrow_bfloat16), 0x7f80u, 1));
  {
    const std::vector<std::uint32_t> half = special_patterns16(10), bfloat = special_patterns16(7);
    const Array<unsigned> half_in = m.upload("half_patterns", half.data(), 64);
    const Array<unsigned> bfloat_in = m.upload("bfloat16_patterns", bfloat.data(), 64);
    const unsigned *half_pointer = half_in.data(), *bfloat_pointer = bfloat_in.data();
    add(split_nan(u32("half_special", 40960, dim3(64), dim3(64), arithmetic_special<Half>, half_pointer), 0x7c00u, 10,
                  9));
    add(split_nan(u32("bfloat16_special", 40960, dim3(64), dim3(64), arithmetic_special<Bfloat16>, bfloat_pointer),
                  0x7f80u, 10, 9));
  }
  // Exponents: fp16 from 2^-4 to 2^-1 (base 0x2c00, two exponent bits), bf16 from 2^-3 on (base 0x3e00).
  add({u32("half_random", 163840, dim3(64), dim3(256), arithmetic_random<Half>, 0x0fffu, 0x2c00u)});
  add({u32("half_random_denormal", 163840, dim3(64), dim3(256), arithmetic_random<Half>, 0x1fffu, 0x0000u)});
  add({u32("bfloat16_random", 163840, dim3(64), dim3(256), arithmetic_random<Bfloat16>, 0x01ffu, 0x3e00u)});
  add({u32("half2", 4096 * 10, dim3(16), dim3(256), half2_arithmetic)});
  add({u32("bfloat162", 4096 * 10, dim3(16), dim3(256), bfloat162_arithmetic)});
  add({u32("half_forms", 4096 * 16, dim3(16), dim3(256), half_forms<Half>)});
  add({u32("bfloat16_forms", 4096 * 16, dim3(16), dim3(256), half_forms<Bfloat16>)});

  // float
  {
    const std::vector<std::uint32_t> special = special_patterns32();
    const Array<unsigned> in = m.upload("float_patterns", special.data(), 48);
    const unsigned* pointer = in.data();
    add({u32("float_special", 48 * 48 * 8, dim3(48), dim3(48), float_special, pointer)});
  }
  add({u32("float_random", 16384 * 8, dim3(64), dim3(256), float_random)});
  add({u32("float_integer", 1024 * 10, dim3(4), dim3(256), float_integer)});
  add({u32("rounded_by_name", 1024 * 8, dim3(4), dim3(256), rounded_by_name)});
  // Tolerances: the CUDA programming guide's maximum errors against the exact result (exp2f 2, expf 1, __expf
  // 2 + |1.173 x|, logf 1, __logf 3 above 2, __fdividef 2, log2f 1, rsqrtf 2), plus one for the host's own rounding.
  add({float_family<Function::exp2>(m, "exp2f", -126.0f, 20.0f, 3)});
  add({float_family<Function::exp>(m, "expf", -80.0f, 20.0f, 2)});
  add({float_family<Function::fast_exp>(m, "__expf", -10.0f, 2.0f, 14)});
  add({float_family<Function::log>(m, "logf", 0.01f, 1000.0f, 2)});
  add({float_family<Function::fast_log>(m, "__logf", 2.1f, 1000.0f, 4)});
  add({float_family<Function::fast_divide>(m, "__fdividef", 0.01f, 1000.0f, 3)});
  add({float_family<Function::log2>(m, "log2f", 0.01f, 1000.0f, 2)});
  add({float_family<Function::rsqrt>(m, "rsqrtf", 0.01f, 1000.0f, 3)});

  // Integers, vectors
  add({u32("integers", 1024 * 8, dim3(4), dim3(256), integers)});
  {
    Family family{"vectors", std::vector<std::uint32_t>(64 * 6), 0};
    float host[256];
    for (int i = 0; i < 256; ++i) host[i] = static_cast<float>(i * i) / 7.0f;
    const Array<float> in = m.upload("vectors_in", host, 256);
    const Array<std::uint32_t> quads = m.upload("vectors_quads", family.words.data(), 256);
    const Array<std::uint32_t> pairs = m.upload("vectors_pairs", family.words.data(), 128);
    launch(m, vectors, dim3(1), dim3(64), reinterpret_cast<const float4*>(in.data()),
           reinterpret_cast<uint4*>(quads.data()), reinterpret_cast<float2*>(pairs.data()));
    m.download(family.words.data(), quads);
    m.download(family.words.data() + 256, pairs);
    add({family});
  }
  add(run_ptx_conformance(options));
  return all;
}

}  // namespace flash::inline FLASH_MACHINE
