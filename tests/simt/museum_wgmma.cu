// museum_wgmma.cu: the museum's exhibits of Hopper's warpgroups: wgmma, stmatrix, named barriers, setmaxnreg. Each has
// the switch `Fixed` and the marks of museum.cu; its name begins with its instruction's.
// Run: as museum.cu, whose run_exhibit comes here; simt_museum_test asserts the reports and compares twins' results.
#include "gpu/hopper.cuh"
#include "sim/error.hpp"
#include "tests/simt/museum.hpp"

namespace flash::inline FLASH_MACHINE {

using half = __half;

// Tiles of 64 rows and 64 columns: one panel of the 128-byte swizzle each. All elements are equal, so where they lie
// does not matter.
struct Panels {
  alignas(1024) half a[64 * 64];
  alignas(1024) half b[64 * 64];
};

// clang-format off
__device__ inline void fill(half* tile, float value, int first = threadIdx.x, int step = blockDim.x) {
  const half x = __float2half(value);
  for (int i = first; i < 64 * 64; i += step)
    tile[i] = x;  //@ wgmma_without_barrier:2 wgmma_no_proxy_fence:2 wgmma_overwritten:1 wgmma_released_early:1
}
// clang-format on
// A = B = 1, by all threads, for all threads and the async proxy.
__device__ inline Panels& ones() {
  Panels& s = shared<Panels>();
  fill(s.a, 1), fill(s.b, 1);
  fence_proxy_async();
  __syncthreads();
  return s;
}
__device__ inline void clear(float (&d)[32]) {
  for (int i = 0; i < 32; ++i) d[i] = 0;
}

// ---- wgmma: registers ------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void wgmma_no_fence(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  clear(d);
  if (Fixed) wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), true);  //@ wgmma_no_fence:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

// An attention kernel's rescaling of O: the fence of the step before does not cover it.
template <bool Fixed>
__global__ void wgmma_rescaled(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  clear(d);
  wgmma_fence();
  for (int step = 0; step < 3; ++step) {
    wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), true);  //@ wgmma_rescaled:1
    wgmma_commit();
    wgmma_wait<0>(d);
    for (int i = 0; i < 32; ++i) d[i] *= 0.5f;  //@ wgmma_rescaled:2
    if (Fixed) wgmma_fence();
  }
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_no_wait(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_no_wait:2
  wgmma_commit();
  if (Fixed) wgmma_wait<0>(d);
  out[threadIdx.x] = d[5] + in[threadIdx.x];  //@ wgmma_no_wait:1
  if (!Fixed) wgmma_wait<0>(d);
}

template <bool Fixed>
__global__ void wgmma_wait_too_short(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32], e[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);
  wgmma_commit();
  wgmma_m64nNk16<half>(e, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_wait_too_short:2
  wgmma_commit();
  wgmma_wait<1>(d);
  if (Fixed) wgmma_wait<0>(e);
  out[threadIdx.x] = d[0] + e[0] + in[threadIdx.x];  //@ wgmma_wait_too_short:1
  if (!Fixed) wgmma_wait<0>(e);
}

template <bool Fixed>
__global__ void wgmma_no_commit(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_no_commit:2
  if (Fixed) wgmma_commit();
  wgmma_wait<0>();
  if (Fixed) wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];  //@ wgmma_no_commit:1
  wgmma_commit();
  wgmma_wait<0>(d);
}

template <bool Fixed>
__global__ void wgmma_named_early(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32], e[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);
  wgmma_commit();
  wgmma_m64nNk16<half>(e, matrix_descriptor(s.a), matrix_descriptor(s.b), false);
  wgmma_commit();
  wgmma_wait<1>(Fixed ? d : e);  //@ wgmma_named_early:1
  wgmma_wait<0>(d, e);
  out[threadIdx.x] = d[0] + e[0] + in[threadIdx.x];
}

template <int kPending>
__device__ inline void wait_for(float (&d)[32], float (&e)[32]) {
  wgmma_wait<kPending>(d, e);  //@ wgmma_waits_differ:1
}
template <bool Fixed>
__global__ void wgmma_waits_differ(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32], e[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);
  wgmma_commit();
  wgmma_m64nNk16<half>(e, matrix_descriptor(s.a), matrix_descriptor(s.b), false);
  wgmma_commit();
  if (Fixed || threadIdx.x < 32)
    wait_for<0>(d, e);
  else
    wait_for<1>(d, e);
  out[threadIdx.x] = d[0] + e[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_unnamed(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);
  wgmma_commit();
  wgmma_wait<0>();
  if (Fixed) wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];  //@ wgmma_unnamed:1
}

// P of the next tile is written into the registers that the last product still reads.
template <bool Fixed>
__global__ void wgmma_a_rewritten(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  unsigned a[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
  wgmma_fence();
  wgmma_m64nNk16<half>(d, a, matrix_descriptor(s.b), false);  //@ wgmma_a_rewritten:2
  wgmma_commit();
  if (Fixed) wgmma_wait<0>(d, a);
  a[2] = 0x40004000u;  //@ wgmma_a_rewritten:1
  wgmma_wait<0>(d, a);
  out[threadIdx.x] = d[0] + static_cast<float>(a[2] >> 28) + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_two_shapes(const float* in, float* out, int) {
  Panels& s = ones();
  float d[40] = {};
  float(&narrow)[32] = reinterpret_cast<float(&)[32]>(d);
  wgmma_fence();
  wgmma_m64nNk16<half>(narrow, matrix_descriptor(s.a), matrix_descriptor(s.a), false);
  wgmma_commit();
  if (Fixed) wgmma_wait<0>(d);
  if (Fixed) wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.a), true);  //@ wgmma_two_shapes:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_never_waited(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_never_waited:1
  wgmma_commit();
  if (Fixed) wgmma_wait<0>(d);
  out[threadIdx.x] = in[threadIdx.x];
}

// ---- wgmma: operands in shared memory --------------------------------------------------------------------------

template <bool Fixed>
__global__ void wgmma_without_barrier(const float* in, float* out, int) {
  Panels& s = shared<Panels>();
  fill(s.a, 1), fill(s.b, 1);
  fence_proxy_async();
  if (Fixed) __syncthreads();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_without_barrier:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

// One warp waits for the tile, and all four multiply.
template <bool Fixed>
__global__ void wgmma_one_warp_waits(const float* in, float* out, int) {
  Panels& s = shared<Panels>();
  const int t = threadIdx.x, come = Fixed ? 256 : 160;  // 256 threads
  if (t >= 128) {
    for (int i = t - 128; i < 64 * 64; i += 128) s.a[i] = s.b[i] = __float2half(1);  //@ wgmma_one_warp_waits:2
    fence_proxy_async();
    bar_arrive(1, come);
    return;
  }
  if (Fixed || t < 32) bar_sync(1, come);
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_one_warp_waits:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[t] = d[0] + in[t];
}

template <bool Fixed>
__global__ void wgmma_no_proxy_fence(const float* in, float* out, int) {
  Panels& s = shared<Panels>();
  fill(s.a, 1), fill(s.b, 1);
  if (Fixed) fence_proxy_async();
  __syncthreads();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_no_proxy_fence:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_after_atomics(const float* in, float* out, int) {
  Panels& s = ones();
  atomicExch(reinterpret_cast<unsigned*>(s.a) + threadIdx.x, 0x40004000u);  //@ wgmma_after_atomics:2
  if (Fixed) fence_proxy_async();
  __syncthreads();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_after_atomics:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_ragged_tile(const float* in, float* out, int n) {
  Panels& s = shared<Panels>();
  fill(s.a, 1);
  for (int i = threadIdx.x; i < (Fixed ? 64 : n) * 64; i += blockDim.x) s.b[i] = __float2half(i < n * 64 ? 1 : 0);
  fence_proxy_async();
  __syncthreads();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_ragged_tile:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_overwritten(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_overwritten:2
  wgmma_commit();
  if (Fixed) wgmma_wait<0>(d);
  if (Fixed) __syncthreads();
  fill(s.b, 2);
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

// The second warpgroup writes the next tile as soon as the first one has released this one.
template <bool Fixed>
__global__ void wgmma_released_early(const float* in, float* out, int) {
  Panels& s = ones();
  const int t = threadIdx.x;  // 256 threads
  if (t < 128) {
    float d[32];
    wgmma_fence();
    wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_released_early:2
    wgmma_commit();
    if (!Fixed) bar_arrive(1, 256);
    wgmma_wait<0>(d);
    if (Fixed) bar_arrive(1, 256);
    out[t] = d[0] + in[t];
  } else {
    bar_sync(1, 256);
    fill(s.b, 2, t - 128, 128);
  }
}

// The panel's pattern of chunks is the address's: half a pattern further on every row is another's.
template <bool Fixed>
__global__ void wgmma_misaligned_tile(const float* in, float* out, int) {
  Panels& s = ones();
  const MatrixDescriptor a = matrix_descriptor(s.a + (Fixed ? 0 : 256));
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, a, matrix_descriptor(s.b), false);  //@ wgmma_misaligned_tile:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_past_end(const float* in, float* out, int) {
  Panels& s = ones();
  float d[48];
  wgmma_fence();
  // 96 columns of B, of which the tile has 64
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(Fixed ? s.a : s.b), false);  //@ wgmma_past_end:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_of_global(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  const void* const b = Fixed ? static_cast<const void*>(s.b) : in;
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(b), false);  //@ wgmma_of_global:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_no_swizzle(const float* in, float* out, int) {
  Panels& s = ones();
  MatrixDescriptor b = matrix_descriptor(s.b);
  if (!Fixed) b.high &= 0x3fffffffu;
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), b, false);  //@ wgmma_no_swizzle:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

// ---- wgmma: who comes ------------------------------------------------------------------------------------------

// Each warp looks for its own rows in A, as with mma; here the instruction does.
template <bool Fixed>
__global__ void wgmma_own_rows(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  const unsigned rows = Fixed ? 0 : threadIdx.x / 32 * 2 % 8 * 1024;
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a) + rows, matrix_descriptor(s.b), false);  //@ wgmma_own_rows:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

// A causal mask that looks at a warp's rows skips the tile for one warp.
template <bool Fixed>
__global__ void wgmma_warp_skips(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  clear(d);
  wgmma_fence();
  if (Fixed || threadIdx.x >= 32) {
    wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_warp_skips:1
    wgmma_commit();
    wgmma_wait<0>(d);
  }
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_two_sites(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  wgmma_fence();
  if (Fixed || threadIdx.x < 64)
    wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ wgmma_two_sites:2
  else
    wgmma_m64nNk16<half>(d, matrix_descriptor(s.b), matrix_descriptor(s.a), false);  //@ wgmma_two_sites:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_part_of_warpgroup(const float* in, float* out, int) {
  Panels& s = ones();
  const int t = threadIdx.x;  // 192 threads: the second warpgroup has two warps
  float d[32];
  clear(d);
  if (!Fixed || t < 128) {
    wgmma_fence();  //@ wgmma_part_of_warpgroup:1
    wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);
    wgmma_commit();
    wgmma_wait<0>(d);
  }
  out[t] = d[0] + in[t];
}

// ---- stmatrix --------------------------------------------------------------------------------------------------

// P through shared memory: a warp's 16 rows of 16 columns, without a swizzle.
struct Rows16 {
  alignas(16) half x[16 * 16];
};
__device__ inline half* own_row(Rows16& s) {
  const int lane = threadIdx.x;  // 32 threads
  return &s.x[lane % 16 * 16 + lane / 16 * 8];
}

template <bool Fixed>
__global__ void stmatrix_without_barrier(const float* in, float* out, int) {
  Rows16& s = shared<Rows16>();
  const int lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) own_row(s)[i] = __float2half(0);
  __syncwarp();
  const unsigned ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
  stmatrix_x4(own_row(s), ones);  //@ stmatrix_without_barrier:1
  if (Fixed) __syncwarp();
  out[lane] = __half2float(s.x[(31 - lane) * 8]) + in[lane];  //@ stmatrix_without_barrier:2
}

template <bool Fixed>
__global__ void stmatrix_misaligned(const float* in, float* out, int) {
  Rows16& s = shared<Rows16>();
  const unsigned ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
  stmatrix_x4(own_row(s) + (Fixed ? 0 : 4), ones);  //@ stmatrix_misaligned:1
  out[threadIdx.x] = __half2float(*own_row(s)) + in[threadIdx.x];
}

template <bool Fixed>
__global__ void stmatrix_past_end(const float* in, float* out, int) {
  Rows16& s = shared<Rows16>();
  const unsigned ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
  stmatrix_x4(own_row(s) + (Fixed ? 0 : 16), ones);  //@ stmatrix_past_end:1
  __syncwarp();
  out[threadIdx.x] = __half2float(*own_row(s)) + in[threadIdx.x];
}

template <bool Fixed>
__global__ void stmatrix_no_proxy_fence(const float* in, float* out, int) {
  Panels& s = ones();
  const unsigned twos[4] = {0x40004000u, 0x40004000u, 0x40004000u, 0x40004000u};
  const int t = threadIdx.x, lane = t % 32, row = t / 32 * 16 + lane % 16;
  for (int k = 0; k < 4; ++k)
    stmatrix_x4(&s.a[row * 64 + ((k * 2 + lane / 16) ^ (row % 8)) * 8], twos);  //@ stmatrix_no_proxy_fence:2
  if (Fixed) fence_proxy_async();
  bar_sync(1, 128);
  float d[32];
  wgmma_fence();
  wgmma_m64nNk16<half>(d, matrix_descriptor(s.a), matrix_descriptor(s.b), false);  //@ stmatrix_no_proxy_fence:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[t] = d[0] + in[t];
}

// ---- A that lies transposed: dQ = dS K ---------------------------------------------------------------------------

// A warp's 16 rows of dSᵀ, one of 64 keys each.
__device__ inline void store_rows(half* tile) {
  const unsigned twos[4] = {0x40004000u, 0x40004000u, 0x40004000u, 0x40004000u};
  const int t = threadIdx.x, lane = t % 32, row = t / 32 * 16 + lane % 16;
  for (int k = 0; k < 4; ++k) {
    half* const to = &tile[row * 64 + ((k * 2 + lane / 16) ^ (row % 8)) * 8];
    stmatrix_x4(to, twos);  //@ wgmma_at_no_proxy_fence:2 wgmma_at_overwritten:1
  }
}

template <bool Fixed>
__global__ void wgmma_at_no_proxy_fence(const float* in, float* out, int) {
  Panels& s = ones();
  store_rows(s.a);
  if (Fixed) fence_proxy_async();
  bar_sync(1, 128);
  float d[32];
  const MatrixDescriptor a = matrix_descriptor(s.a), b = matrix_descriptor(s.b);
  wgmma_fence();
  wgmma_m64nNk16<half, Major::MN, Major::MN>(d, a, b, false);  //@ wgmma_at_no_proxy_fence:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_at_overwritten(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  const MatrixDescriptor a = matrix_descriptor(s.a), b = matrix_descriptor(s.b);
  wgmma_fence();
  wgmma_m64nNk16<half, Major::MN, Major::MN>(d, a + 3 * 2048, b + 3 * 2048, false);  //@ wgmma_at_overwritten:2
  wgmma_commit();
  if (Fixed) wgmma_wait<0>(d);
  if (Fixed) bar_sync(1, 128);
  store_rows(s.a);
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_at_past_end(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  const MatrixDescriptor a = matrix_descriptor(s.b), b = matrix_descriptor(s.a);
  wgmma_fence();
  for (int k = 0; k < (Fixed ? 64 : 80); k += 16)
    wgmma_m64nNk16<half, Major::MN, Major::MN>(d, a + k * 128, b + k * 128, k > 0);  //@ wgmma_at_past_end:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

template <bool Fixed>
__global__ void wgmma_at_stride(const float* in, float* out, int) {
  Panels& s = ones();
  float d[32];
  const MatrixDescriptor a = matrix_descriptor(s.a, 16, Fixed ? 1024 : 1040), b = matrix_descriptor(s.b);
  wgmma_fence();
  wgmma_m64nNk16<half, Major::MN, Major::MN>(d, a, b, false);  //@ wgmma_at_stride:1
  wgmma_commit();
  wgmma_wait<0>(d);
  out[threadIdx.x] = d[0] + in[threadIdx.x];
}

// ---- red -------------------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void red_no_order(const float* in, float* out, int) {
  const int t = threadIdx.x;  // 96 threads, a warp for each third of `out`
  const float4 four = make_float4(in[t], in[t], in[t], in[t]);
  red_add_v4(&out[t % 32 * 4 + (Fixed ? t / 32 * 128 : 0)], four);  //@ red_no_order:1
}

template <bool Fixed>
__global__ void red_misaligned(const float* in, float* out, int) {
  const int t = threadIdx.x;  // 32 threads
  red_add_v4(&out[t * (Fixed ? 8 : 5)], make_float4(in[t], 0, 0, 0));  //@ red_misaligned:1
}

template <bool Fixed>
__global__ void red_of_shared(const float* in, float* out, int) {
  Panels& s = shared<Panels>();
  const int t = threadIdx.x;  // 32 threads
  auto* const sums = reinterpret_cast<float*>(s.a) + 4 * t;
  for (int i = 0; i < 4; ++i) sums[i] = 0;
  red_add_v4(Fixed ? &out[4 * t] : sums, make_float4(in[t], 0, 0, 0));  //@ red_of_shared:1
}

// ---- named barriers --------------------------------------------------------------------------------------------

struct Message {
  float x[256];
};

template <bool Fixed>
__global__ void bar_too_many(const float* in, float* out, int) {
  Message& s = shared<Message>();
  const int t = threadIdx.x;  // 256 threads, of which 128 come
  if (t < 128) {
    s.x[t] = in[t];
    bar_sync(1, Fixed ? 128 : 256);  //@ bar_too_many:1
    out[t] = s.x[127 - t];
  }
}

template <bool Fixed>
__global__ void bar_too_few(const float* in, float* out, int) {
  Message& s = shared<Message>();
  const int t = threadIdx.x;  // 128 threads
  s.x[t] = 0;
  __syncthreads();
  s.x[t] = in[t];                       //@ bar_too_few:1
  bar_sync(1, Fixed ? 128 : 64);        // two warps go on when two have come
  out[t] = s.x[127 - t] + s.x[t ^ 64];  //@ bar_too_few:2
}

template <bool Fixed>
__global__ void bar_two_counts(const float* in, float* out, int) {
  const int t = threadIdx.x;                 // 128 threads
  bar_sync(1, Fixed || t >= 64 ? 128 : 96);  //@ bar_two_counts:1
  out[t] = in[t];
}

template <bool Fixed>
__global__ void bar_odd_count(const float* in, float* out, int) {
  bar_sync(1, Fixed ? 128 : 100);  //@ bar_odd_count:1
  out[threadIdx.x] = in[threadIdx.x];
}

template <bool Fixed>
__global__ void bar_no_such(const float* in, float* out, int n) {
  bar_sync(Fixed ? 15 : n, 128);  //@ bar_no_such:1
  out[threadIdx.x] = in[threadIdx.x];
}

template <bool Fixed>
__global__ void bar_zero(const float* in, float* out, int) {
  const int t = threadIdx.x;                  // 256 threads
  if (t < 128) bar_sync(Fixed ? 1 : 0, 128);  //@ bar_zero:1
  __syncthreads();                            //@ bar_zero:2
  out[t] = in[t];
}

template <bool Fixed>
__global__ void bar_of_half_warp(const float* in, float* out, int) {
  const int t = threadIdx.x;                   // 128 threads
  if (Fixed || t % 32 < 16) bar_sync(1, 128);  //@ bar_of_half_warp:1
  __syncwarp();                                //@ bar_of_half_warp:2
  out[t] = in[t];
}

// The consumer tells that it is there, but does not wait.
template <bool Fixed>
__global__ void bar_arrives_only(const float* in, float* out, int) {
  Message& s = shared<Message>();
  const int t = threadIdx.x;  // 256 threads
  if (t < 128) {
    s.x[t] = in[t];  //@ bar_arrives_only:2
    bar_arrive(1, 256);
  } else {
    if (Fixed)
      bar_sync(1, 256);
    else
      bar_arrive(1, 256);
    out[t] = s.x[t - 128];  //@ bar_arrives_only:1
  }
}

// Ping-pong: each warpgroup waits for its turn and gives the next one to the other; one has a tile more.
template <bool Fixed>
__global__ void bar_unequal_turns(const float* in, float* out, int) {
  const int t = threadIdx.x, group = t / 128;  // 256 threads
  const int turns = Fixed || group == 1 ? 3 : 2;
  if (group == 1) bar_arrive(1, 256);
  float sum = 0;
  for (int turn = 0; turn < turns; ++turn) {
    bar_sync(1 + group, 256);  //@ bar_unequal_turns:1
    sum += in[t];
    bar_arrive(2 - group, 256);
  }
  out[t] = sum;
}

// ---- setmaxnreg ------------------------------------------------------------------------------------------------

// 384 threads begin with 168 registers each: 504 for three warpgroups' threads.
template <bool Fixed>
__global__ void __launch_bounds__(384, 1) setmaxnreg_over_budget(const float* in, float* out, int) {
  if (threadIdx.x < 256)
    setmaxnreg_inc<240>();  //@ setmaxnreg_over_budget:1
  else if (Fixed)
    setmaxnreg_dec<24>();
  else
    setmaxnreg_dec<40>();
  out[threadIdx.x] = in[threadIdx.x];
}

template <bool Fixed>
__global__ void __launch_bounds__(384, 1) setmaxnreg_wrong_way(const float* in, float* out, int) {
  if (threadIdx.x < 256)
    setmaxnreg_inc<208>();
  else if (Fixed)
    setmaxnreg_dec<40>();
  else
    setmaxnreg_inc<40>();  //@ setmaxnreg_wrong_way:1
  out[threadIdx.x] = in[threadIdx.x];
}

template <bool Fixed>
__global__ void __launch_bounds__(384, 1) setmaxnreg_of_one_warp(const float* in, float* out, int) {
  if (threadIdx.x >= (Fixed ? 256 : 352)) setmaxnreg_dec<40>();  //@ setmaxnreg_of_one_warp:1
  out[threadIdx.x] = in[threadIdx.x];
}

__device__ inline void give_back(const float* in, float* out) {
  setmaxnreg_dec<40>();  //@ setmaxnreg_no_bounds:1
  out[threadIdx.x] = in[threadIdx.x];
}
__global__ void __launch_bounds__(128) without_bounds(const float* in, float* out, int) {
  give_back(in, out);
}
__global__ void __launch_bounds__(128, 1) with_bounds(const float* in, float* out, int) {
  give_back(in, out);
}

// ---- Host side -------------------------------------------------------------------------------------------------

template <class Shared>
PtxExhibit show_warpgroups(Machine& m, void (*kernel)(const float*, float*, int), int threads = 128, int n = 0) {
  PtxExhibit shown;
  shown.out.resize(384);
  for (std::size_t i = 0; i < shown.out.size(); ++i) shown.out[i] = static_cast<float>(i);
  const Array<float> in = m.upload("in", shown.out.data(), shown.out.size());
  const Array<float> out = m.upload("out", shown.out.data(), shown.out.size());
  launch<Shared>(m, kernel, dim3(1), dim3(threads), in.data(), out.data(), n);
  m.download(shown.out.data(), out);
  shown.findings = m.findings(), shown.ledger = m.reports().back().ledger;
  return shown;
}

template <bool Fixed>
PtxExhibit run_wgmma_variant(Machine& m, const std::string& name) {
  if (name == "wgmma_no_fence") return show_warpgroups<Panels>(m, wgmma_no_fence<Fixed>);
  if (name == "wgmma_rescaled") return show_warpgroups<Panels>(m, wgmma_rescaled<Fixed>);
  if (name == "wgmma_no_wait") return show_warpgroups<Panels>(m, wgmma_no_wait<Fixed>);
  if (name == "wgmma_wait_too_short") return show_warpgroups<Panels>(m, wgmma_wait_too_short<Fixed>);
  if (name == "wgmma_no_commit") return show_warpgroups<Panels>(m, wgmma_no_commit<Fixed>);
  if (name == "wgmma_named_early") return show_warpgroups<Panels>(m, wgmma_named_early<Fixed>);
  if (name == "wgmma_waits_differ") return show_warpgroups<Panels>(m, wgmma_waits_differ<Fixed>);
  if (name == "wgmma_at_no_proxy_fence") return show_warpgroups<Panels>(m, wgmma_at_no_proxy_fence<Fixed>);
  if (name == "wgmma_at_overwritten") return show_warpgroups<Panels>(m, wgmma_at_overwritten<Fixed>);
  if (name == "wgmma_at_past_end") return show_warpgroups<Panels>(m, wgmma_at_past_end<Fixed>);
  if (name == "wgmma_at_stride") return show_warpgroups<Panels>(m, wgmma_at_stride<Fixed>);
  if (name == "red_no_order") return show_warpgroups<Message>(m, red_no_order<Fixed>, 96);
  if (name == "red_misaligned") return show_warpgroups<Message>(m, red_misaligned<Fixed>, 32);
  if (name == "red_of_shared") return show_warpgroups<Panels>(m, red_of_shared<Fixed>, 32);
  if (name == "wgmma_unnamed") return show_warpgroups<Panels>(m, wgmma_unnamed<Fixed>);
  if (name == "wgmma_a_rewritten") return show_warpgroups<Panels>(m, wgmma_a_rewritten<Fixed>);
  if (name == "wgmma_two_shapes") return show_warpgroups<Panels>(m, wgmma_two_shapes<Fixed>);
  if (name == "wgmma_never_waited") return show_warpgroups<Panels>(m, wgmma_never_waited<Fixed>);
  if (name == "wgmma_without_barrier") return show_warpgroups<Panels>(m, wgmma_without_barrier<Fixed>);
  if (name == "wgmma_one_warp_waits") return show_warpgroups<Panels>(m, wgmma_one_warp_waits<Fixed>, 256);
  if (name == "wgmma_no_proxy_fence") return show_warpgroups<Panels>(m, wgmma_no_proxy_fence<Fixed>);
  if (name == "wgmma_after_atomics") return show_warpgroups<Panels>(m, wgmma_after_atomics<Fixed>);
  if (name == "wgmma_ragged_tile") return show_warpgroups<Panels>(m, wgmma_ragged_tile<Fixed>, 128, 40);
  if (name == "wgmma_overwritten") return show_warpgroups<Panels>(m, wgmma_overwritten<Fixed>);
  if (name == "wgmma_released_early") return show_warpgroups<Panels>(m, wgmma_released_early<Fixed>, 256);
  if (name == "wgmma_misaligned_tile") return show_warpgroups<Panels>(m, wgmma_misaligned_tile<Fixed>);
  if (name == "wgmma_past_end") return show_warpgroups<Panels>(m, wgmma_past_end<Fixed>);
  if (name == "wgmma_of_global") return show_warpgroups<Panels>(m, wgmma_of_global<Fixed>);
  if (name == "wgmma_no_swizzle") return show_warpgroups<Panels>(m, wgmma_no_swizzle<Fixed>);
  if (name == "wgmma_own_rows") return show_warpgroups<Panels>(m, wgmma_own_rows<Fixed>);
  if (name == "wgmma_warp_skips") return show_warpgroups<Panels>(m, wgmma_warp_skips<Fixed>);
  if (name == "wgmma_two_sites") return show_warpgroups<Panels>(m, wgmma_two_sites<Fixed>);
  if (name == "wgmma_part_of_warpgroup") return show_warpgroups<Panels>(m, wgmma_part_of_warpgroup<Fixed>, 192);
  if (name == "stmatrix_without_barrier") return show_warpgroups<Rows16>(m, stmatrix_without_barrier<Fixed>, 32);
  if (name == "stmatrix_misaligned") return show_warpgroups<Rows16>(m, stmatrix_misaligned<Fixed>, 32);
  if (name == "stmatrix_past_end") return show_warpgroups<Rows16>(m, stmatrix_past_end<Fixed>, 32);
  if (name == "stmatrix_no_proxy_fence") return show_warpgroups<Panels>(m, stmatrix_no_proxy_fence<Fixed>);
  if (name == "bar_too_many") return show_warpgroups<Message>(m, bar_too_many<Fixed>, 256);
  if (name == "bar_too_few") return show_warpgroups<Message>(m, bar_too_few<Fixed>);
  if (name == "bar_two_counts") return show_warpgroups<Message>(m, bar_two_counts<Fixed>);
  if (name == "bar_odd_count") return show_warpgroups<Message>(m, bar_odd_count<Fixed>);
  if (name == "bar_no_such") return show_warpgroups<Message>(m, bar_no_such<Fixed>, 128, 16);
  if (name == "bar_zero") return show_warpgroups<Message>(m, bar_zero<Fixed>, 256);
  if (name == "bar_of_half_warp") return show_warpgroups<Message>(m, bar_of_half_warp<Fixed>);
  if (name == "bar_arrives_only") return show_warpgroups<Message>(m, bar_arrives_only<Fixed>, 256);
  if (name == "bar_unequal_turns") return show_warpgroups<Message>(m, bar_unequal_turns<Fixed>, 256);
  if (name == "setmaxnreg_over_budget") return show_warpgroups<Message>(m, setmaxnreg_over_budget<Fixed>, 384);
  if (name == "setmaxnreg_wrong_way") return show_warpgroups<Message>(m, setmaxnreg_wrong_way<Fixed>, 384);
  if (name == "setmaxnreg_of_one_warp") return show_warpgroups<Message>(m, setmaxnreg_of_one_warp<Fixed>, 384);
  if (name == "setmaxnreg_no_bounds") return show_warpgroups<Message>(m, Fixed ? with_bounds : without_bounds);
  refuse("exhibit", name, "a name from museum.hpp", "list them with museum --list");
}

PtxExhibit run_wgmma_exhibit(const std::string& name, Variant variant, const MachineOptions& options) {
  Machine m(options);
  return variant == Variant::bug ? run_wgmma_variant<false>(m, name) : run_wgmma_variant<true>(m, name);
}

}  // namespace flash::inline FLASH_MACHINE
