// stages.cu: tiles come to shared memory while earlier ones are added up: cuda::pipeline of a thread, of a block whose
// threads all copy and read, and of a block whose first warp copies what the others read.
// ./flash check tests/simt/programs/stages.cu; nvcc -arch=native stages.cu (sm_80 or newer). With an argument: the
// readers release a stage before they have read it, and the next copy overtakes them.
#include <cooperative_groups.h>
#include <cuda/pipeline>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kThreads = 96, kTile = 64, kStages = 2;

// Each thread copies four floats of its own and reads them itself. in [tiles][4 kThreads], out [kThreads].
__global__ void own(const float* in, float* out, int tiles) {
  __shared__ float4 stage[kStages][kThreads];
  cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
  const float4* const from = reinterpret_cast<const float4*>(in) + threadIdx.x;
  float sum = 0;
  for (int read = 0, copied = 0; read < tiles; ++read) {
    for (; copied < tiles && copied < read + kStages; ++copied) {
      pipe.producer_acquire();
      cuda::memcpy_async(&stage[copied % kStages][threadIdx.x], from + copied * kThreads, sizeof(float4), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    const float4 x = stage[read % kStages][threadIdx.x];
    sum += x.x + x.y + x.z + x.w;
    pipe.consumer_release();
  }
  out[threadIdx.x] = sum;
}

// All threads copy and read together. in [tiles][kTile], out [kTile]: sums of columns, from the other end.
__global__ void together(const float* in, float* out, int tiles) {
  __shared__ __align__(16) float stage[kStages][kTile];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const auto block = cooperative_groups::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  float sum = 0;
  for (int read = 0, copied = 0; read < tiles; ++read) {
    for (; copied < tiles && copied < read + kStages; ++copied) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, stage[copied % kStages], in + copied * kTile, sizeof(float) * kTile, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    if (threadIdx.x < kTile) sum += stage[read % kStages][kTile - 1 - threadIdx.x];
    pipe.consumer_release();
  }
  if (threadIdx.x < kTile) out[kTile - 1 - threadIdx.x] = sum;
}

// The first warp copies, two others read. The same sums.
__global__ void apart(const float* in, float* out, int tiles, bool broken) {
  __shared__ __align__(16) float stage[kStages][kTile];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const auto block = cooperative_groups::this_thread_block();
  const bool copies = threadIdx.x < 32;
  auto pipe =
      cuda::make_pipeline(block, &state, copies ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  if (copies) {
    for (int i = 0; i < tiles; ++i) {
      pipe.producer_acquire();
      const int at = 2 * threadIdx.x;
      cuda::memcpy_async(&stage[i % kStages][at], &in[i * kTile + at], 2 * sizeof(float), pipe);
      pipe.producer_commit();
    }
  } else {
    const int column = threadIdx.x - 32;
    float sum = 0;
    for (int i = 0; i < tiles; ++i) {
      pipe.consumer_wait();
      if (broken) pipe.consumer_release();
      sum += stage[i % kStages][column];  //@ race
      if (!broken) pipe.consumer_release();
    }
    out[column] = sum;
  }
}

int main(int argc, char**) {
  const int tiles = 6;
  std::vector<float> in(tiles * 4 * kThreads), sums(kTile), wanted(kTile), own_sums(kThreads), own_wanted(kThreads);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = i * 7 % 19;
  for (int i = 0; i < tiles * kTile; ++i) wanted[i % kTile] += in[i];
  for (std::size_t i = 0; i < in.size(); ++i) own_wanted[i / 4 % kThreads] += in[i];
  float *d_in, *d_own, *d_together, *d_apart;
  CUDA(cudaMalloc(&d_in, in.size() * sizeof(float)));
  CUDA(cudaMalloc(&d_own, kThreads * sizeof(float)));
  CUDA(cudaMalloc(&d_together, kTile * sizeof(float)));
  CUDA(cudaMalloc(&d_apart, kTile * sizeof(float)));
  CUDA(cudaMemcpy(d_in, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice));
  own<<<1, kThreads>>>(d_in, d_own, tiles);
  together<<<1, kThreads>>>(d_in, d_together, tiles);
  apart<<<1, kThreads>>>(d_in, d_apart, tiles, argc > 1);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(own_sums.data(), d_own, kThreads * sizeof(float), cudaMemcpyDeviceToHost));
  bool wrong = own_sums != own_wanted;
  for (const float* d_sums : {d_together, d_apart}) {
    CUDA(cudaMemcpy(sums.data(), d_sums, kTile * sizeof(float), cudaMemcpyDeviceToHost));
    wrong |= sums != wanted;
  }
  std::printf("stages: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
