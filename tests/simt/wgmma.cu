// wgmma.cu: products of whole tiles by wgmma in all its forms. Threads store the tiles in the 128-byte swizzle.
// Run: simt_wgmma_test, which compares them with exact sums.
#include "gpu/hopper.cuh"
#include "tests/simt/wgmma.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr int kMostK = 128, kMostN = 256;

struct Tiles {
  alignas(1024) unsigned short a[64 * kMostK];
  alignas(1024) unsigned short b[kMostN * kMostK];
};

// Element (row, x) of panels of 64 columns and so many rows.
__device__ inline int swizzled(int row, int x, int rows) {
  return x / 64 * rows * 64 + row * 64 + ((x % 64 / 8) ^ (row % 8)) * 8 + x % 8;
}

template <class T, Major kA, Major kB, bool kRegistersA, int kN>
__global__ void product(const unsigned short* a, const unsigned short* b, const float* c, float* d, int k) {
  Tiles& s = shared<Tiles>();
  for (int i = threadIdx.x; i < 64 * k; i += blockDim.x)
    s.a[kA == Major::MN ? swizzled(i % k, i / k, k) : swizzled(i / k, i % k, 64)] = a[i];
  for (int i = threadIdx.x; i < k * kN; i += blockDim.x)
    s.b[kB == Major::MN ? swizzled(i / kN, i % kN, k) : swizzled(i % kN, i / kN, kN)] = b[i];
  fence_proxy_async();
  __syncthreads();

  const int t = threadIdx.x % 128, lane = t % 32, row = t / 32 * 16 + lane / 4, column = lane % 4 * 2;
  const auto element = [&](int i) { return (row + i / 2 % 2 * 8) * kN + column + i / 4 * 8 + i % 2; };
  float acc[kN / 2];
  unsigned registers[kMostK / 16][4] = {};
  for (int i = 0; i < kN / 2; ++i) acc[i] = c[element(i)];
  if (kRegistersA)
    for (int step = 0; step < k / 16; ++step)
      for (int r = 0; r < 4; ++r) {
        const unsigned short* const two = &a[(row + r % 2 * 8) * k + step * 16 + column + r / 2 * 8];
        registers[step][r] = two[0] | static_cast<unsigned>(two[1]) << 16;
      }

  const MatrixDescriptor of_a = matrix_descriptor(s.a), of_b = matrix_descriptor(s.b, kB == Major::MN ? k * 128 : 16);
  wgmma_fence();
  for (int step = 0; step < k / 16; ++step) {
    const unsigned at_a = kA == Major::MN ? step * 2048 : step / 4 * 64 * 128 + step % 4 * 32;
    const unsigned at_b = kB == Major::MN ? step * 2048 : step / 4 * kN * 128 + step % 4 * 32;
    if constexpr (kRegistersA)
      wgmma_m64nNk16<T, kB>(acc, registers[step], of_b + at_b, true);
    else
      wgmma_m64nNk16<T, kB, kA>(acc, of_a + at_a, of_b + at_b, true);
  }
  wgmma_commit();
  wgmma_wait<0>(acc, registers);
  for (int i = 0; i < kN / 2; ++i) d[threadIdx.x / 128 * 64 * kN + element(i)] = acc[i];
}

template <class T, Major kA, Major kB, bool kRegistersA>
void launch_product(Machine& m, const WgmmaShape& shape, const unsigned short* a, const unsigned short* b,
                    const float* c, float* d) {
  const auto run = [&]<int kN>(std::integral_constant<int, kN>) {
    if (shape.n == kN)
      launch<Tiles>(m, product<T, kA, kB, kRegistersA, kN>, dim3(1), dim3(128 * shape.warpgroups), a, b, c, d, shape.k);
  };
  run(std::integral_constant<int, 32>{}), run(std::integral_constant<int, 64>{});
  run(std::integral_constant<int, 80>{}), run(std::integral_constant<int, 96>{});
  run(std::integral_constant<int, 128>{}), run(std::integral_constant<int, 192>{});
  run(std::integral_constant<int, 256>{});
}

WgmmaResult multiply(const WgmmaShape& shape, const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b,
                     const std::vector<float>& c, const MachineOptions& options) {
  Machine m(options);
  WgmmaResult result;
  result.d.resize(static_cast<std::size_t>(shape.warpgroups * 64 * shape.n));
  const Array<std::uint16_t> on_a = m.upload("a", a.data(), a.size()), on_b = m.upload("b", b.data(), b.size());
  const Array<float> on_c = m.upload("c", c.data(), c.size()), d = m.upload("d", result.d.data(), result.d.size());
  const auto run = [&]<class T, Major kA, Major kB, bool kRegistersA> {
    launch_product<T, kA, kB, kRegistersA>(m, shape, on_a.data(), on_b.data(), on_c.data(), d.data());
  };
  const auto of_a = [&]<class T, Major kB> {
    if (shape.a_in_registers)
      run.template operator()<T, Major::K, kB, true>();
    else if (shape.a_mn_major)
      run.template operator()<T, Major::MN, kB, false>();
    else
      run.template operator()<T, Major::K, kB, false>();
  };
  const auto of_type = [&]<class T> {
    shape.b_mn_major ? of_a.template operator()<T, Major::MN>() : of_a.template operator()<T, Major::K>();
  };
  shape.bfloat16 ? of_type.template operator()<__nv_bfloat16>() : of_type.template operator()<__half>();
  m.download(result.d.data(), d);
  result.ledger = m.reports().back().ledger;
  return result;
}

// Between the two tiles lies another variable, so that the second begins where its alignment puts it.
__global__ void product_of_variables(float* d /*[64][64]*/) {
  __shared__ alignas(1024) unsigned short a[64 * 64];
  __shared__ float between[3];
  __shared__ alignas(1024) unsigned short b[64 * 64];
  if (threadIdx.x == 0) between[1] = 1;
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
    a[swizzled(i / 64, i % 64, 64)] = __half_as_ushort(__float2half(static_cast<float>(i / 64 + 1)));
    b[i] = __half_as_ushort(__float2half(1));
  }
  fence_proxy_async();
  __syncthreads();
  float acc[32];
  wgmma_fence();
  for (int step = 0; step < 4; ++step)
    wgmma_m64nNk16<__half>(acc, matrix_descriptor(a) + step * 32, matrix_descriptor(b) + step * 32, step > 0);
  wgmma_commit();
  wgmma_wait<0>(acc);
  const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
  for (int i = 0; i < 32; ++i) d[(row + i / 2 % 2 * 8) * 64 + column + i / 4 * 8 + i % 2] = acc[i] * between[1];
}

WgmmaResult multiply_variables(const MachineOptions& options) {
  Machine m(options);
  WgmmaResult result;
  result.d.resize(64 * 64);
  const Array<float> d = m.upload("d", result.d.data(), result.d.size());
  product_of_variables<<<1, 128>>>(d.data());
  m.download(result.d.data(), d);
  result.ledger = m.reports().back().ledger;
  return result;
}

__global__ void product_from(float* d /*[128]*/, unsigned start) {
  __shared__ alignas(1024) unsigned short tile[2 * 64 * 64];
  for (int i = threadIdx.x; i < 2 * 64 * 64; i += blockDim.x) tile[i] = 0;
  fence_proxy_async();
  __syncthreads();
  float acc[16];
  wgmma_fence();
  wgmma_m64nNk16<__half>(acc, matrix_descriptor(tile) + start, matrix_descriptor(tile), false);
  wgmma_commit();
  wgmma_wait<0>(acc);
  d[threadIdx.x] = acc[0];
}

std::vector<Finding> multiply_from(const MachineOptions& options, unsigned start) {
  Machine m(options);
  product_from<<<1, 128>>>(m.alloc<float>("d", 128).data(), start);
  return m.findings();
}

__global__ void __launch_bounds__(128, 1) asked_differently() {
  if (threadIdx.x % 32 == 5)
    setmaxnreg_dec<24>();
  else
    setmaxnreg_dec<40>();
}

std::vector<Finding> ask_differently(const MachineOptions& options) {
  Machine m(options);
  asked_differently<<<1, 128>>>();
  return m.findings();
}

__global__ void vectors_added(float* d /*[256]*/, float* old /*[64]*/) {
  const int t = threadIdx.x;
  red_add_v4(d + 4 * t, make_float4(1, 1, 1, 1));
  old[t] = atomicAdd(reinterpret_cast<float4*>(d) + t, make_float4(2, 2, 2, 2)).w;
}

WgmmaResult add_vectors(const MachineOptions& options) {
  Machine m(options);
  WgmmaResult result;
  for (int i = 0; i < 256; ++i) result.d.push_back(static_cast<float>(i));
  const Array<float> d = m.upload("d", result.d.data(), 256), old = m.alloc<float>("old", 64);
  launch(m, vectors_added, dim3(1), dim3(64), d.data(), old.data());
  result.d.resize(256 + 64);
  m.download(result.d.data(), d);
  m.download(result.d.data() + 256, old);
  result.ledger = m.reports().back().ledger;
  return result;
}

}  // namespace flash::inline FLASH_MACHINE
