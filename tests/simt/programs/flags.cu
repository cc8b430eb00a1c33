// flags.cu: cuda::atomic and cuda::std::atomic: a block writes a message and raises a flag with release, another one
// waits for it with acquire; then all of the atomics' operations, and operators, counted by many threads.
// ./flash check tests/simt/programs/flags.cu; nvcc -arch=native flags.cu. With an argument: the flag is raised relaxed,
// and the message may come after it.
#include <cuda/atomic>
#include <cuda/std/atomic>

#include <cstdio>
#include <cstdlib>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

__device__ cuda::atomic<int, cuda::thread_scope_device> flag, count, most, bits, swaps, operated;
__device__ cuda::std::atomic<int> everywhere;

__global__ void message(int* x, bool broken) {
  if (blockIdx.x == 0) {
    x[0] = 42;
    flag.store(1, broken ? cuda::std::memory_order_relaxed : cuda::std::memory_order_release);
  } else {
    while (flag.load(cuda::std::memory_order_acquire) == 0) {
    }
    x[1] = x[0] + 1;  //@ race
  }
}

__global__ void operations(int* out) {
  __shared__ cuda::atomic<int, cuda::thread_scope_block> of_block;
  const int i = threadIdx.x + blockIdx.x * blockDim.x, n = gridDim.x * blockDim.x;
  if (threadIdx.x == 0) of_block.store(0);
  __syncthreads();
  of_block.fetch_add(1, cuda::std::memory_order_relaxed);
  count.fetch_sub(2);
  most.fetch_max(i);
  bits.fetch_or(1 << i % 8);
  everywhere.fetch_xor(i);
  ++operated, operated += 2, operated--;
  for (int old = swaps.load(); !swaps.compare_exchange_weak(old, old + 3);) {
  }
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&out[0], of_block.load());
  if (i == n - 1) out[1] = bits.exchange(0) == 0;
}

__global__ void results(int* out) {
  out[2] = count.load(), out[3] = most, out[4] = everywhere.load(), out[5] = operated.load(), out[6] = swaps.load();
}

int main(int argc, char**) {
  int *d_x, *d_out, x[2], out[7] = {};
  CUDA(cudaMalloc(&d_x, sizeof x));
  CUDA(cudaMalloc(&d_out, sizeof out));
  CUDA(cudaMemset(d_out, 0, sizeof out));
  message<<<2, 1>>>(d_x, argc > 1);
  operations<<<4, 32>>>(d_out);
  results<<<1, 1>>>(d_out);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(x, d_x, sizeof x, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(out, d_out, sizeof out, cudaMemcpyDeviceToHost));
  const int wanted[7] = {128, 0, -256, 127, 0, 256, 384};
  bool wrong = x[0] != 42 || x[1] != 43;
  for (int i = 0; i < 7; ++i) wrong |= out[i] != wanted[i];
  CUDA(cudaFree(d_x));
  CUDA(cudaFree(d_out));
  std::printf("flags: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
