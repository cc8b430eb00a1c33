// producer_consumer.cu: one warp loads tiles into a ring of buffers, another adds them up; they meet through counters
// in shared memory, without a barrier of the block.
// ./flash check tests/simt/programs/producer_consumer.cu; nvcc -arch=native producer_consumer.cu. With an argument: the
// producer's fence is missing.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kBuffers = 2, kTile = 64;

// Waits until the counter has reached a value.
__device__ void wait(int* counter, int value) {
  if (threadIdx.x % 32 == 0)
    while (atomicAdd(counter, 0) < value) {
    }
  __threadfence_block();
  __syncwarp();
}

// What this warp did before is done for whoever sees the counter.
__device__ void arrive(int* counter, bool broken) {
  __syncwarp();
  if (!broken) __threadfence_block();
  if (threadIdx.x % 32 == 0) atomicAdd(counter, 1);
}

__global__ void sums_of_tiles(const int* in, int* out, int tiles, bool broken) {
  __shared__ int ring[kBuffers][kTile];
  __shared__ int filled, emptied;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) filled = emptied = 0;
  __syncthreads();
  if (threadIdx.x < 32) {  // the producer
    for (int tile = 0; tile < tiles; ++tile) {
      wait(&emptied, tile - kBuffers + 1);
      for (int i = lane; i < kTile; i += 32) ring[tile % kBuffers][i] = in[tile * kTile + i];
      arrive(&filled, broken);
    }
  } else {  // the consumer
    for (int tile = 0; tile < tiles; ++tile) {
      wait(&filled, tile + 1);
      int sum = 0;
      for (int i = lane; i < kTile; i += 32) sum += ring[tile % kBuffers][i];  //@ race
      sum = __reduce_add_sync(0xffffffffu, sum);
      if (lane == 0) out[tile] = sum;
      arrive(&emptied, false);
    }
  }
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int tiles = 12, n = tiles * kTile;
  std::vector<int> in(n), out(tiles), expected(tiles, 0);
  for (int i = 0; i < n; ++i) expected[i / kTile] += in[i] = i * 11 % 17;
  int *d_in, *d_out;
  CUDA(cudaMalloc(&d_in, n * sizeof(int)));
  CUDA(cudaMalloc(&d_out, tiles * sizeof(int)));
  CUDA(cudaMemcpy(d_in, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  sums_of_tiles<<<1, 64>>>(d_in, d_out, tiles, broken);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(out.data(), d_out, tiles * sizeof(int), cudaMemcpyDeviceToHost));
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_out));
  const bool wrong = out != expected;
  std::printf("producer_consumer: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
