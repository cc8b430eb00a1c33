// words.cu: intrinsics, one line each, against results derived by hand from the CUDA Math API's and the Programming
// Guide's descriptions: integers, roundings, conversions, halfs, caches, atomics, votes.
// ./flash check tests/simt/programs/words.cu; nvcc -arch=native words.cu. With an argument: an assertion fails.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cassert>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda/atomic>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

static_assert(sizeof(char4) == 4 && alignof(char4) == 4 && sizeof(uchar3) == 3 && alignof(uchar2) == 2);
static_assert(sizeof(short3) == 6 && alignof(ushort4) == 8 && sizeof(int1) == 4 && alignof(int3) == 4);
static_assert(alignof(uint2) == 8 && alignof(longlong2) == 16 && sizeof(float3) == 12 && alignof(double2) == 16);

struct Parameters {
  float one;
  bool broken;
};

// One expectation: the line says which.
struct Result {
  int line;
  double got, expected;
};
constexpr int kMost = 200;

class Results {
 public:
  __device__ explicit Results(Result* all) : all_(all) {}
  __device__ void expect(int line, double got, double expected) { all_[n_++] = {line, got, expected}; }

 private:
  Result* all_;
  int n_ = 0;
};
#define EXPECT(got, expected) r.expect(__LINE__, static_cast<double>(got), static_cast<double>(expected))

__noinline__ __device__ float twice(float x) {
  return 2 * x;
}

__device__ void integers(Results& r) {
  EXPECT(__umulhi(0x80000000u, 4u), 2);
  EXPECT(__mulhi(-1, 2), -1);
  EXPECT(__umul64hi(1ull << 63, 6ull), 3);
  EXPECT(__mul64hi(-1ll, 2ll), -1);
  EXPECT(__mul24(0x01000003, 2), 6);
  EXPECT(__umul24(0xff000003u, 0x01000002u), 6);
  EXPECT(__sad(-3, 4, 10u), 17);
  EXPECT(__usad(3u, 4u, 10u), 11);
  EXPECT(__hadd(3, -6), -2);
  EXPECT(__rhadd(3, -6), -1);
  EXPECT(__uhadd(0xffffffffu, 0xfffffffdu), 0xfffffffeu);
  EXPECT(__urhadd(1u, 2u), 2);
  EXPECT(__byte_perm(0x03020100u, 0x07060504u, 0x7531u), 0x07050301);
  EXPECT(__funnelshift_l(0x80000000u, 1u, 4), 0x18);
  EXPECT(__funnelshift_r(0x80000000u, 1u, 4), 0x18000000);
  EXPECT(__funnelshift_lc(0x80000000u, 1u, 40), 0x80000000u);
  EXPECT(__funnelshift_rc(0x80000000u, 1u, 40), 1);
  EXPECT(__dp4a(0x01020304, 0x01010101, 5), 15);
  EXPECT(__dp4a(static_cast<int>(0xff000000u), 0x02000000, 0), -2);
  EXPECT(__dp4a(0xff000000u, 0x02000000u, 0u), 510);
  EXPECT(__dp4a(make_char4(1, -2, 3, 4), make_char4(5, 6, 7, 8), 1), 1 + 5 - 12 + 21 + 32);
  EXPECT(__brevll(1ull), 0x1p63);
  EXPECT(min(3, 4u), 3);
  EXPECT(max(-1, 1u), 0xffffffffu);
  EXPECT(min(-5ll, 3ll), -5);
  EXPECT(umin(3u, 0xffffffffu), 3);
  EXPECT(umax(3u, 0xffffffffu), 0xffffffffu);
  EXPECT(llmin(-5ll, 3ll), -5);
  EXPECT(ullmax(1ull << 40, 3ull), 0x1p40);
}

__device__ void packed(Results& r) {
  EXPECT(__vadd2(0x0001ffffu, 0x00010001u), 0x00020000u);
  EXPECT(__vadd4(0x01ff7f80u, 0x01010101u), 0x02008081u);
  EXPECT(__vaddss2(0x7fff8000u, 0x0001ffffu), 0x7fff8000u);
  EXPECT(__vaddus4(0xff01fe80u, 0x01010180u), 0xff02ffffu);
  EXPECT(__vabsdiffu4(0x10ff0003u, 0x2000ff01u), 0x10ffff02u);
  EXPECT(__vmaxs2(0xffff0005u, 0x00010003u), 0x00010005u);
  EXPECT(__vminu4(0x01020304u, 0x04030201u), 0x01020201u);
  EXPECT(__vcmpgts4(0x7f80ff00u, 0x00000000u), 0xff000000u);
  EXPECT(__vseteq2(0x12345678u, 0x12340000u), 0x00010000u);
  EXPECT(__vavgs2(0xfffd0003u, 0u), 0xfffe0002u);
  EXPECT(__vsads4(0xff00017fu, 0x01000080u), 2 + 1 + 255);
  EXPECT(__vneg2(0x00018000u), 0xffff8000u);
  EXPECT(__vabsss4(0x80ff0102u), 0x7f010102u);
  EXPECT(__dp2a_lo(0x0002ffff, 0x00000305, 1), 1 + 6 - 5);
  EXPECT(__dp2a_hi(0x00020003u, 0x05040302u, 1u), 1 + 12 + 10);
}

__device__ void mathematics(Results& r, float one) {
  float sine, cosine;
  EXPECT(sinpif(1.5f * one), -1);
  EXPECT(cospif(2.5f * one), 0);
  EXPECT(sinpi(1e15 * one), 0);
  sincospif(0.5f * one, &sine, &cosine);
  EXPECT(sine, 1);
  EXPECT(cosine, 0);
  EXPECT(rcbrtf(0.125f * one), 2);
  EXPECT(norm3df(one, 2, 2), 3);
  EXPECT(norm4d(one, 3, 5, 1), 6);
  EXPECT(rnorm3d(0, 3 * one, 4), 0.2);
  EXPECT(rhypotf(6 * one, 8), 0.1f);
  EXPECT(erfinvf(0 * one), 0);
  EXPECT(isinf(erfinvf(one)) && isnan(erfinvf(2 * one)), true);
  EXPECT(fabs(erf(erfinv(0.9 * one)) - 0.9) < 1e-15, true);
  EXPECT(erfcinvf(one), 0);
  EXPECT(erfcxf(0 * one), 1);
  EXPECT(normcdff(0 * one), 0.5);
  EXPECT(fdividef(6 * one, 3), 2);
}

__device__ void roundings(Results& r, float one) {
  const float epsilon = FLT_EPSILON, below = 1 - epsilon / 2, tiny = one * 0x1p-60f;
  EXPECT(__fadd_rz(one, 0x1p-25f), 1);
  EXPECT(__fadd_ru(one, 0x1p-25f), 1 + epsilon);
  EXPECT(__fadd_rd(one, -0x1p-26f), below);
  EXPECT(__fsub_ru(one, 0x1p-26f), 1);
  EXPECT(__fsub_rz(one, 0x1p-26f), below);
  EXPECT(signbit(__fadd_rd(one, -one)), true);
  EXPECT(signbit(__fadd_rn(one, -one)), false);
  EXPECT(__fmul_rz(one + epsilon, one + epsilon), 1 + 2 * epsilon);
  EXPECT(__fmul_ru(one + epsilon, one + epsilon), 1 + 3 * epsilon);
  EXPECT(__fmul_rz(FLT_MAX, 2 * one), FLT_MAX);
  EXPECT(__fmul_ru(FLT_MAX, 2 * one), INFINITY);
  EXPECT(__fmul_rd(FLT_MAX, -2 * one), -INFINITY);
  EXPECT(__fmaf_ru(one, one, tiny), 1 + epsilon);
  EXPECT(__fmaf_rd(-one, one, -tiny), -1 - epsilon);
  EXPECT(__fmaf_rz(-one, one, tiny), -below);
  EXPECT(__fmaf_rn(one, one, tiny), 1);
  EXPECT(__float_as_uint(__fdiv_rd(one, 3.0f)), 0x3eaaaaaau);
  EXPECT(__float_as_uint(__fdiv_ru(one, 3.0f)), 0x3eaaaaabu);
  EXPECT(__float_as_uint(__frcp_rz(3 * one)), 0x3eaaaaaau);
  EXPECT(__float_as_uint(__fsqrt_rd(2 * one)), 0x3fb504f3u);
  EXPECT(__float_as_uint(__fsqrt_ru(2 * one)), 0x3fb504f4u);
  EXPECT(__frsqrt_rn(4 * one), 0.5);
  EXPECT(__dadd_ru(1.0 * one, 0x1p-80), 1 + DBL_EPSILON);
  EXPECT(__dmul_rz(one + DBL_EPSILON, one + DBL_EPSILON), 1 + 2 * DBL_EPSILON);
  EXPECT(__ddiv_rd(6.0 * one, 3.0), 2);
}

__device__ void conversions(Results& r, float one) {
  EXPECT(__double2float_rz(1 + 0x1p-30), 1);
  EXPECT(__double2float_ru(1 + 0x1p-30), 1 + FLT_EPSILON);
  EXPECT(__int2float_rz(16777217), 16777216);
  EXPECT(__int2float_ru(16777217), 16777218);
  EXPECT(__uint2float_rn(0xffffffffu), 4294967296.0);
  EXPECT(__uint2float_rd(0xffffffffu), 4294967040.0);
  EXPECT(__ll2float_rd(-16777217ll), -16777218);
  EXPECT(__double2int_rn(2.5 * one), 2);
  EXPECT(__double2int_rz(-2.7 * one), -2);
  EXPECT(__float2int_ru(-2.5f * one), -2);
  EXPECT(__float2int_rn(3e9f * one), 2147483647);
  EXPECT(__float2uint_rz(-one), 0);
  EXPECT(__float2ll_rz(1e10f * one), 1e10);
  EXPECT(__float2ull_rz(-5 * one), 0);
  EXPECT(__double2uint_rn(4294967295.4 * one), 4294967295.0);
  EXPECT(__double2hiint(1.0 * one), 0x3ff00000);
  EXPECT(__hiloint2double(0x3ff00000, 1), 1 + DBL_EPSILON);
  EXPECT(isnan(one * NAN) && isinf(one * INFINITY) && isfinite(one), true);
}

__device__ void halfs(Results& r, float one) {
  const half h = 1.5f * one, two = __float2half(2 * one);
  float x = h;
  EXPECT(x, 1.5);
  x = h * two + half(0.25f);
  EXPECT(x, 3.25);
  EXPECT(h < two && h != two && -h < h, true);
  EXPECT(__half2float(hexp(__float2half(0 * one))), 1);
  EXPECT(__half2float(hsqrt(__float2half(4 * one))), 2);
  EXPECT(__half2float(hfloor(h)), 1);
  EXPECT(__half2int_rn(__float2half(2.5f * one)), 2);
  EXPECT(__half_as_ushort(__float2half(65504 * one)), 0x7bff);
  half2 v = __floats2half2_rn(one, 2 * one);
  v = v * v + __half2half2(two);
  EXPECT(__low2float(v), 3);
  EXPECT(__high2float(v), 6);
  EXPECT(__low2float(__hmin2(v, __float2half2_rn(5 * one))), 3);
  EXPECT(__high2float(__hmax2(v, __float2half2_rn(5 * one))), 6);
  EXPECT(__low2float(__lowhigh2highlow(v)), 6);
  EXPECT(__hbeq2(v, v), true);
  __nv_bfloat162 b = __floats2bfloat162_rn(one, 3 * one);
  b = __hfma2(b, b, b);
  EXPECT(__low2float(b), 2);
  EXPECT(__high2float(b), 12);
  EXPECT(static_cast<float>(__float2bfloat16(1.00390625f * one)), 1);  // half an ulp: to even
  EXPECT(__half2float(__float2half_rz(1e6f * one)), 65504);
  EXPECT(__half2float(__float2half_ru(one + FLT_EPSILON)), 1 + 0x1p-10);
  EXPECT(__half2float(__float2half_rd(-1e-9f * one)), -0x1p-24);
  EXPECT(static_cast<float>(__float2bfloat16_rz(3.999f * one)), 3.984375);
  EXPECT(__half2float(__int2half_rn(2049)), 2048);
  EXPECT(__half2int_rz(__float2half(-2.7f * one)), -2);
  EXPECT(__half2float(__hadd_sat(h, two)), 1);
  EXPECT(__half2float(__hfma_relu(-h, two, h)), 0);
  EXPECT(__low2float(__hgt2(v, __float2half2_rn(3 * one))), 0);
  EXPECT(__high2float(__hgt2(v, __float2half2_rn(3 * one))), 1);
  EXPECT(__high2float(h2floor(v + __float2half2_rn(0.5f))), 6);
  EXPECT(isnan(__half2float(__hmax_nan(h, __float2half(NAN * one)))), true);
}

struct Cells {
  float2 pair;
  float4 four;
  half2 halfs;
  float bounded, hinted;
  int block, system, compared, referenced;
};

__global__ void words(const __grid_constant__ Parameters p, Result* results, Cells* cells) {
  const unsigned lane = threadIdx.x;
  assert(!p.broken || lane < 7);  //@ assertion

  // Together.
  int same = 0, different = 1;
  const unsigned all = __match_all_sync(0xffffffffu, 3, &same), none = __match_all_sync(0xffffffffu, lane, &different);
  atomicAdd(&cells->pair, make_float2(1, 2));
  atomicAdd(&cells->four, make_float4(1, 2, 3, 4));
  atomicAdd(&cells->halfs, __floats2half2_rn(1, 2));
  atomicAdd_block(&cells->block, 2);
  atomicAdd_system(&cells->system, 3);
  atomicCAS_block(&cells->compared, static_cast<int>(lane), static_cast<int>(lane) + 1);
  cuda::atomic_ref<int, cuda::thread_scope_device>(cells->referenced).fetch_add(4, cuda::memory_order_relaxed);
  __threadfence_system();
  __syncwarp();
  if (lane != 0) return;

  // Alone.
  Results r(results);
  EXPECT(all, 0xffffffffu);
  EXPECT(same != 0 && different == 0 && none == 0, true);
  EXPECT(twice(p.one), 2);
  const long long begin = clock64();
  __nanosleep(20);
  EXPECT(clock64() >= begin, true);
  __stcs(&cells->hinted, 7.0f);
  EXPECT(__ldcg(&cells->hinted) + __ldcs(&cells->hinted) + __ldca(&cells->hinted), 21);
  integers(r);
  packed(r);
  mathematics(r, p.one);
  roundings(r, p.one);
  conversions(r, p.one);
  halfs(r, p.one);
  if (p.one != 1) __trap();
}

int main(int argc, char**) {
  std::vector<Result> results(kMost, Result{0, 0, 0});
  Cells cells{};
  Result* d_results;
  Cells* d_cells;
  CUDA(cudaMalloc(&d_results, kMost * sizeof(Result)));
  CUDA(cudaMalloc(&d_cells, sizeof cells));
  CUDA(cudaMemcpy(d_results, results.data(), kMost * sizeof(Result), cudaMemcpyHostToDevice));
  CUDA(cudaMemset(d_cells, 0, sizeof cells));
  words<<<1, 32>>>(Parameters{1, argc > 1}, d_results, d_cells);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(results.data(), d_results, kMost * sizeof(Result), cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(&cells, d_cells, sizeof cells, cudaMemcpyDeviceToHost));
  int wrong = 0, lines = 0;
  const auto expect = [&](int line, double got, double expected) {
    ++lines;
    if (got == expected) return;
    std::printf("line %d: %.17g instead of %.17g\n", line, got, expected), ++wrong;
  };
  for (const Result& result : results)
    if (result.line != 0) expect(result.line, result.got, result.expected);
  if (lines != 138) std::printf("%d lines were tried\n", lines), ++wrong;
  expect(__LINE__, cells.pair.x + cells.pair.y, 96);
  expect(__LINE__, cells.four.x + cells.four.y + cells.four.z + cells.four.w, 320);
  expect(__LINE__, __low2float(cells.halfs) + __high2float(cells.halfs), 96);
  expect(__LINE__, cells.block + cells.system + cells.referenced, 32 * 9);
  expect(__LINE__, cells.compared > 0, true);
  CUDA(cudaFree(d_results));
  CUDA(cudaFree(d_cells));
  std::printf("words: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
