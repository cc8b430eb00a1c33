// reduction.cu: the sum of an array in the seven steps of the classic lesson, from divergent branches to many elements
// per thread. All give the same integer sum.
// ./flash check tests/simt/programs/reduction.cu; nvcc -arch=native reduction.cu. With an argument: a barrier is
// missing.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kThreads = 128;

// 1: neighbours first; the modulo makes every other lane idle.
__global__ void interleaved_divergent(const int* in, int* out, int n) {
  __shared__ int s[kThreads];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? in[i] : 0;
  __syncthreads();
  for (int stride = 1; stride < blockDim.x; stride *= 2) {
    if (t % (2 * stride) == 0) s[t] += s[t + stride];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}

// 2: the same pairs for consecutive threads; now banks conflict.
__global__ void interleaved_strided(const int* in, int* out, int n) {
  __shared__ int s[kThreads];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? in[i] : 0;
  __syncthreads();
  for (int stride = 1; stride < blockDim.x; stride *= 2) {
    const int at = 2 * stride * t;
    if (at < blockDim.x) s[at] += s[at + stride];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}

// 3: halves instead of neighbours: no conflicts.
__global__ void sequential(const int* in, int* out, int n, bool broken) {
  __shared__ int s[kThreads];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? in[i] : 0;
  if (!broken) __syncthreads();
  for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
    if (t < stride) s[t] += s[t + stride];  //@ race
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}

// 4: each thread adds two elements while it loads.
__global__ void add_while_loading(const int* in, int* out, int n) {
  extern __shared__ int s[];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
  s[t] = (i < n ? in[i] : 0) + (i + blockDim.x < n ? in[i + blockDim.x] : 0);
  __syncthreads();
  for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
    if (t < stride) s[t] += s[t + stride];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}

// The last 64 elements by one warp. Lanes are not in step: each read is apart from each write.
__device__ void last_warp(int* s, int t) {
  int sum = s[t] + s[t + 32];
  __syncwarp();
  for (int stride = 16; stride > 0; stride /= 2) {
    s[t] = sum;
    __syncwarp();
    if (t < stride) sum += s[t + stride];
    __syncwarp();
  }
  s[t] = sum;
}

// 5: the last warp needs no block-wide barriers.
__global__ void unrolled_last_warp(const int* in, int* out, int n) {
  extern __shared__ int s[];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
  s[t] = (i < n ? in[i] : 0) + (i + blockDim.x < n ? in[i + blockDim.x] : 0);
  __syncthreads();
  for (int stride = blockDim.x / 2; stride > 32; stride /= 2) {
    if (t < stride) s[t] += s[t + stride];
    __syncthreads();
  }
  if (t < 32) last_warp(s, t);
  if (t == 0) out[blockIdx.x] = s[0];
}

template <int kBlock>
__device__ void reduce_block(int* s, int t) {
  if (kBlock >= 512) {
    if (t < 256) s[t] += s[t + 256];
    __syncthreads();
  }
  if (kBlock >= 256) {
    if (t < 128) s[t] += s[t + 128];
    __syncthreads();
  }
  if (kBlock >= 128) {
    if (t < 64) s[t] += s[t + 64];
    __syncthreads();
  }
  if (t < 32) last_warp(s, t);
}

// 6: the block's size is known when the kernel is compiled: no loop is left.
template <int kBlock>
__global__ void unrolled(const int* in, int* out, int n) {
  __shared__ int s[kBlock];
  const int t = threadIdx.x, i = blockIdx.x * kBlock * 2 + t;
  s[t] = (i < n ? in[i] : 0) + (i + kBlock < n ? in[i + kBlock] : 0);
  __syncthreads();
  reduce_block<kBlock>(s, t);
  if (t == 0) out[blockIdx.x] = s[0];
}

// 7: many elements per thread, so that the tree is a small part of the work.
template <int kBlock>
__global__ void many_per_thread(const int* in, int* out, int n) {
  __shared__ int s[kBlock];
  const int t = threadIdx.x;
  int sum = 0;
  for (int i = blockIdx.x * kBlock * 2 + t; i < n; i += kBlock * 2 * gridDim.x) {
    sum += in[i];
    if (i + kBlock < n) sum += in[i + kBlock];
  }
  s[t] = sum;
  __syncthreads();
  reduce_block<kBlock>(s, t);
  if (t == 0) out[blockIdx.x] = s[0];
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int n = 5000, blocks = (n + kThreads - 1) / kThreads, half = (blocks + 1) / 2;
  std::vector<int> in(n), out(blocks);
  int expected = 0, wrong = 0;
  for (int i = 0; i < n; ++i) expected += in[i] = i * 37 % 101 - 50;
  int *d_in, *d_out;
  CUDA(cudaMalloc(&d_in, n * sizeof(int)));
  CUDA(cudaMalloc(&d_out, blocks * sizeof(int)));
  CUDA(cudaMemcpy(d_in, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  const auto sum_of = [&](int count, const char* step) {
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(out.data(), d_out, count * sizeof(int), cudaMemcpyDeviceToHost));
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += out[i];
    if (sum != expected) std::printf("%s: %d instead of %d\n", step, sum, expected), ++wrong;
  };
  const size_t bytes = kThreads * sizeof(int);
  interleaved_divergent<<<blocks, kThreads>>>(d_in, d_out, n), sum_of(blocks, "interleaved, divergent");
  interleaved_strided<<<blocks, kThreads>>>(d_in, d_out, n), sum_of(blocks, "interleaved, strided");
  sequential<<<blocks, kThreads>>>(d_in, d_out, n, broken), sum_of(blocks, "sequential");
  add_while_loading<<<half, kThreads, bytes>>>(d_in, d_out, n), sum_of(half, "add while loading");
  unrolled_last_warp<<<half, kThreads, bytes>>>(d_in, d_out, n), sum_of(half, "unrolled last warp");
  unrolled<kThreads><<<half, kThreads>>>(d_in, d_out, n), sum_of(half, "unrolled");
  many_per_thread<256><<<4, 256>>>(d_in, d_out, n), sum_of(4, "many per thread");
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_out));
  std::printf("reduction: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
