// simt_machine.cu: kernels with which the simulator tests itself, compiled for each machine from this one text.
// Each run_ function is host code that is the same on every machine; simt_machine_test.cpp calls them.
// Build: flash_add_kernel(simt_machine_kernels simt_machine.cu)
#include "gpu/kernel.cuh"

namespace flash::inline FLASH_MACHINE {

struct TransposeTile {
  float tile[32][33];  // one column of padding: no bank conflicts
};

__global__ void __launch_bounds__(256) transpose(const float* in /*[n,n]*/, float* out /*[n,n]*/, int n) {
  TransposeTile& s = shared<TransposeTile>();
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8) s.tile[threadIdx.y + r][threadIdx.x] = in[(y + r) * n + x];
  __syncthreads();  // the whole tile is written
  const int tx = blockIdx.y * 32 + threadIdx.x, ty = blockIdx.x * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8) out[(ty + r) * n + tx] = s.tile[threadIdx.x][threadIdx.y + r];
}

void run_transpose(Machine& m, const float* host_in, float* host_out, int n) {
  Array<float> in = m.upload("in", host_in, size_t(n) * n);
  Array<float> out = m.alloc<float>("out", size_t(n) * n);
  launch<TransposeTile>(m, transpose, dim3(n / 32, n / 32), dim3(32, 8), in.data(), out.data(), n);
  m.download(host_out, out);
}

struct Partial {
  float value[32];
};

// Sum of each block's 256 elements: shuffles inside warps, shared memory between them.
__global__ void block_sum(const float* in /*[grid*256]*/, float* out /*[grid]*/) {
  Partial& s = shared<Partial>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = in[blockIdx.x * 256 + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) s.value[warp] = sum;
  __syncthreads();  // all partial sums are written
  if (warp == 0) {
    sum = lane < 8 ? s.value[lane] : 0.0f;
    for (int step = 4; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (lane == 0) out[blockIdx.x] = sum;
  }
}

void run_block_sum(Machine& m, const float* host_in, float* host_out, int blocks) {
  Array<float> in = m.upload("in", host_in, size_t(blocks) * 256);
  Array<float> out = m.alloc<float>("out", blocks);
  launch<Partial>(m, block_sum, blocks, 256, in.data(), out.data());
  m.download(host_out, out);
}

}  // namespace flash::inline FLASH_MACHINE
