// counters.cu: kernels whose memory traffic is known on paper: copies, transposes, one tiled matrix product.
// simt_counters_test asserts the simulator's counters as integers; ncu_counters.sh reads the hardware's.
// Run: counters on a GPU under Nsight Compute (ncu_counters.sh).
#include "gpu/kernel.cuh"
#include "tests/simt/counters.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr int copy_n = 1 << 14;  // elements of each copy
constexpr int matrix_n = 128;    // rows and columns of each matrix

__global__ void copy_float(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i];
}

__global__ void copy_float4(const float4* in, float4* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i];
}

__global__ void copy_strided(const float* in, float* out, int stride, int shift) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i * stride + shift];
}

__global__ void transpose_direct(const float* in /*[n, n]*/, float* out /*[n, n]*/, int n) {
  const int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  out[column * n + row] = in[row * n + column];
}

template <int Columns>
struct Tile {
  float tile[32][Columns];
};

template <int Columns>
__global__ void transpose_through(const float* in /*[n, n]*/, float* out /*[n, n]*/, int n) {
  Tile<Columns>& s = shared<Tile<Columns>>();
  const int x = threadIdx.x, y = threadIdx.y;
  s.tile[y][x] = in[(blockIdx.y * 32 + y) * n + blockIdx.x * 32 + x];
  __syncthreads();
  out[(blockIdx.x * 32 + y) * n + blockIdx.y * 32 + x] = s.tile[x][y];
}

struct Quads {
  float4 quad[128];
};

__global__ void shared_float4(const float4* in, float4* out) {
  Quads& s = shared<Quads>();
  const int t = threadIdx.x;
  s.quad[t] = in[t];
  __syncthreads();
  out[t] = s.quad[127 - t];
}

struct Tiles {
  float a[32][32], b[32][32];
};

__global__ void matmul_tiled(const float* a /*[n, n]*/, const float* b /*[n, n]*/, float* c /*[n, n]*/, int n) {
  Tiles& s = shared<Tiles>();
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
  float sum = 0;
  for (int k0 = 0; k0 < n; k0 += 32) {
    s.a[y][x] = a[row * n + k0 + x];
    s.b[y][x] = b[(k0 + y) * n + column];
    __syncthreads();
    // Not unrolled: nvcc would fetch four neighbours of a[y][…] with one 16-byte load, another number of requests.
#pragma unroll 1
    for (int k = 0; k < 32; ++k) sum = fmaf(s.a[y][k], s.b[k][x], sum);
    __syncthreads();
  }
  c[row * n + column] = sum;
}

std::vector<Ledger> run_counters(const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> zeros(8 * copy_n);
  const int n = matrix_n;
  const Array<float> in = m.upload("in", zeros.data(), zeros.size());
  const Array<float> b = m.upload("b", zeros.data(), static_cast<size_t>(n) * n);
  const Array<float> out = m.alloc<float>("out", copy_n);
  const auto* in4 = reinterpret_cast<const float4*>(in.data());
  auto* out4 = reinterpret_cast<float4*>(out.data());
  const dim3 line(256), tiles(n / 32, n / 32), tile(32, 32);

  launch(m, copy_float, dim3(copy_n / 256), line, in.data(), out.data());
  launch(m, copy_float4, dim3(copy_n / 1024), line, in4, out4);
  launch(m, copy_strided, dim3(copy_n / 256), line, in.data(), out.data(), 1, 1);
  launch(m, copy_strided, dim3(copy_n / 256), line, in.data(), out.data(), 2, 0);
  launch(m, copy_strided, dim3(copy_n / 256), line, in.data(), out.data(), 8, 0);
  launch(m, transpose_direct, tiles, tile, in.data(), out.data(), n);
  launch<Tile<32>>(m, transpose_through<32>, tiles, tile, in.data(), out.data(), n);
  launch<Tile<33>>(m, transpose_through<33>, tiles, tile, in.data(), out.data(), n);
  launch<Quads>(m, shared_float4, dim3(1), dim3(128), in4, out4);
  launch<Tiles>(m, matmul_tiled, tiles, tile, in.data(), b.data(), out.data(), n);

  std::vector<Ledger> ledgers;
  for (const KernelReport& report : m.reports()) ledgers.push_back(report.ledger);
  return ledgers;
}

}  // namespace flash::inline FLASH_MACHINE
