// barrier.cu: a sum of tiles that cuda::memcpy_async brings to shared memory; a cuda::barrier of the block says that a
// tile is there, and that all have read it. Then halves of a block that hand a number to each other: arrive and wait.
// ./flash check tests/simt/programs/barrier.cu; nvcc -arch=native barrier.cu (sm_80 or newer). With an argument: the
// threads arrive and do not wait before they read what others have copied.
#include <cooperative_groups.h>
#include <cuda/barrier>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int kThreads = 64;

// in [tiles][kThreads], out [tiles][kThreads]: each element and its neighbour to the right, around the corner.
__global__ void neighbours(const float* in, float* out, int tiles, bool broken) {
  __shared__ __align__(16) float tile[kThreads];
  __shared__ Barrier there, read;
  const auto block = cooperative_groups::this_thread_block();
  if (threadIdx.x == 0) init(&there, blockDim.x), init(&read, blockDim.x);
  block.sync();
  for (int i = 0; i < tiles; ++i) {
    cuda::memcpy_async(block, tile, in + i * kThreads, cuda::aligned_size_t<16>(sizeof tile), there);
    Barrier::arrival_token arrived = there.arrive();
    if (!broken) there.wait(std::move(arrived));
    const float next = tile[(threadIdx.x + 1) % kThreads];  //@ race
    out[i * kThreads + threadIdx.x] = tile[threadIdx.x] + next;
    read.arrive_and_wait();
  }
}

// The first half of the block counts, the second one adds up what it is told. out [1].
__global__ void told(int* out, int rounds) {
  __shared__ int number;
  __shared__ Barrier said, heard;
  const bool speaks = threadIdx.x < kThreads / 2;
  if (threadIdx.x == 0) init(&said, blockDim.x), init(&heard, blockDim.x);
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0) number = i;
    if (speaks) {
      (void)said.arrive();
    } else {
      said.arrive_and_wait();
      sum += number;
    }
    heard.arrive_and_wait();
  }
  if (!speaks) atomicAdd(out, sum);
}

int main(int argc, char**) {
  const int tiles = 4, n = tiles * kThreads, rounds = 5;
  std::vector<float> in(n), out(n);
  for (int i = 0; i < n; ++i) in[i] = i * 7 % 19;
  float *d_in, *d_out;
  int *d_sum, sum;
  CUDA(cudaMalloc(&d_in, n * sizeof(float)));
  CUDA(cudaMalloc(&d_out, n * sizeof(float)));
  CUDA(cudaMalloc(&d_sum, sizeof sum));
  CUDA(cudaMemset(d_sum, 0, sizeof sum));
  CUDA(cudaMemcpy(d_in, in.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  neighbours<<<1, kThreads>>>(d_in, d_out, tiles, argc > 1);
  told<<<1, kThreads>>>(d_sum, rounds);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(out.data(), d_out, n * sizeof(float), cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(&sum, d_sum, sizeof sum, cudaMemcpyDeviceToHost));
  bool wrong = sum != rounds * (rounds - 1) / 2 * kThreads / 2;
  for (int i = 0; i < n; ++i) wrong |= out[i] != in[i] + in[i / kThreads * kThreads + (i + 1) % kThreads];
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_out));
  CUDA(cudaFree(d_sum));
  std::printf("barrier: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
