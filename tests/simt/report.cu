// report.cu: kernels whose every figure can be derived by hand and differs from every other, so that no two can be
// taken for each other unnoticed. report_test.cpp derives them.
// Use: report.hpp.
#include "gpu/kernel.cuh"
#include "tests/simt/report.hpp"

namespace flash::inline FLASH_MACHINE {

// Two warps per block of (16, 4): two loads of `in`, one store of `out`; one shared store, three shared loads, of which
// one meets each bank twice.
struct Row {
  float x[64];
};
__global__ void uneven(const float* in /*[blocks, 64]*/, float* out /*[blocks, 64]*/) {
  Row& s = shared<Row>();
  const int t = threadIdx.y * 16 + threadIdx.x, i = (blockIdx.z * gridDim.y + blockIdx.y) * 64 + t;
  s.x[t] = in[i];
  __syncthreads();
  float v = s.x[t * 2 % 64];  // even banks only, two words in each
  v = fmaf(v, s.x[63 - t], 1.0f);
  v = fmaf(v, s.x[0], in[i]);
  v = fmaf(v, v, expf(v));
  __syncthreads();
  out[i] = v;
}

// Even lanes read one piece of the array, odd lanes another: 4 sectors, in an order that is not theirs.
__global__ void interleaved(const float* in /*[128]*/, float* out /*[32]*/) {
  const int t = threadIdx.x;
  out[t] = in[t % 2 * 64 + t / 2];
}

// Every fourth lane loads 16 bytes of shared memory, the others none.
struct Quads {
  float4 quad[8];
};
__global__ void sparse(float4* out /*[8]*/) {
  Quads& s = shared<Quads>();
  const int t = threadIdx.x;
  if (t < 8) s.quad[t] = make_float4(0, 0, 0, 0);
  __syncwarp();
  if (t % 4 == 0) out[t / 4] = s.quad[t / 4];
}

// Lane t reads 32 - t elements, the first 20 of them the same ones as all lanes, the others its own. Then the warp
// reads eight rows of 32 that begin one element apart.
__global__ void ragged(const float* in /*[32]*/, const float* rows /*[40]*/, float* out /*[blocks, 32]*/) {
  const int t = threadIdx.x;
  float sum = 0;
  for (int i = 0; i < 32 - t; ++i) sum += in[i < 20 ? i : i + t];
  for (int i = 0; i < 8; ++i) sum += rows[i + t];
  out[blockIdx.x * 32 + t] = sum;
}

// Three blocks add to each of `sums`, two to each of `pairs`, which are 0.
__global__ void added(float* sums /*[32]*/, float* pairs /*[32]*/, unsigned* counts /*[32]*/) {
  const int t = threadIdx.x;
  atomicAdd(&sums[t], 0.1f);
  if (blockIdx.x > 0) atomicAdd(&pairs[t], 0.1f);
  atomicAdd(&counts[t], 1u);
}

template <class T, int kTimes>
__global__ void doubled(T* x /*[32]*/) {
  for (int i = 0; i < kTimes; ++i) x[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x];
}

std::vector<KernelReport> run_uneven(const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> zeros(6 * 64);
  const auto in = m.upload("in", zeros.data(), zeros.size());
  const auto out = m.alloc<float>("out", zeros.size());
  launch<Row>(m, uneven, dim3(1, 3, 2), dim3(16, 4), in.data(), out.data());
  launch<Row>(m, uneven, dim3(1, 1, 1), dim3(16, 4), in.data(), out.data());
  return m.reports();
}

std::vector<KernelReport> run_interleaved(const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> zeros(128);
  const auto in = m.upload("in", zeros.data(), zeros.size());
  const auto out = m.alloc<float>("out", 32);
  launch(m, interleaved, dim3(1), dim3(32), in.data(), out.data());
  return m.reports();
}

std::vector<KernelReport> run_sparse(const MachineOptions& options) {
  Machine m(options);
  const auto out = m.alloc<float4>("out", 8);
  launch<Quads>(m, sparse, dim3(1), dim3(32), out.data());
  return m.reports();
}

std::vector<KernelReport> run_ragged(const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> zeros(40);
  const auto in = m.upload("in", zeros.data(), 32), rows = m.upload("rows", zeros.data(), 40);
  const auto out = m.alloc<float>("out", 4 * 32);
  launch(m, ragged, dim3(4), dim3(32), in.data(), rows.data(), out.data());
  return m.reports();
}

std::vector<KernelReport> run_added(const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> zeros(32);
  const std::vector<unsigned> none(32);
  const auto sums = m.upload("sums", zeros.data(), 32), pairs = m.upload("pairs", zeros.data(), 32);
  const auto counts = m.upload("counts", none.data(), 32);
  launch(m, added, dim3(3), dim3(32), sums.data(), pairs.data(), counts.data());
  launch(m, added, dim3(1), dim3(32), sums.data(), pairs.data(), counts.data());
  return m.reports();
}

std::vector<KernelReport> run_typed(const MachineOptions& options) {
  Machine m(options);
  const std::vector<std::uint16_t> zeros(32);
  const auto x = m.upload("x", zeros.data(), zeros.size());
  launch(m, doubled<__half, 2>, dim3(1), dim3(32), reinterpret_cast<__half*>(x.data()));
  launch(m, doubled<__nv_bfloat16, 3>, dim3(1), dim3(32), reinterpret_cast<__nv_bfloat16*>(x.data()));
  return m.reports();
}

// An array that is gone before the launch is not the launch's.
std::vector<KernelReport> run_freed(const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> zeros(128);
  const auto in = m.upload("in", zeros.data(), zeros.size());
  { const auto gone = m.alloc<float>("gone", 32); }
  const auto out = m.alloc<float>("out", 32);
  launch(m, interleaved, dim3(1), dim3(32), in.data(), out.data());
  return m.reports();
}

}  // namespace flash::inline FLASH_MACHINE
