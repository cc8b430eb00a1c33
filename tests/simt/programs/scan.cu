// scan.cu: prefix sums: Hillis and Steele's with two buffers, Blelloch's with fewer additions, and whole arrays in
// three kernels: scan blocks, scan their sums, add these.
// ./flash check tests/simt/programs/scan.cu; nvcc -arch=native scan.cu. With an argument: one buffer instead of two.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kThreads = 256;

// Inclusive; one block.
__global__ void hillis_steele(const int* in, int* out, int n, bool broken) {
  __shared__ int buffer[2][kThreads];
  const int t = threadIdx.x;
  int from = 0;
  buffer[0][t] = t < n ? in[t] : 0;
  __syncthreads();
  for (int distance = 1; distance < kThreads; distance *= 2) {
    const int to = broken ? from : 1 - from;
    buffer[to][t] = t >= distance ? buffer[from][t] + buffer[from][t - distance] : buffer[from][t];  //@ race
    __syncthreads();
    from = to;
  }
  if (t < n) out[t] = buffer[from][t];
}

// Exclusive, two elements per thread; `sums` gets each block's total.
__global__ void blelloch(const int* in, int* out, int* sums, int n) {
  extern __shared__ int s[];
  const int t = threadIdx.x, count = 2 * blockDim.x, base = blockIdx.x * count;
  s[2 * t] = base + 2 * t < n ? in[base + 2 * t] : 0;
  s[2 * t + 1] = base + 2 * t + 1 < n ? in[base + 2 * t + 1] : 0;
  int offset = 1;
  for (int d = count / 2; d > 0; d /= 2) {  // up: sums of pairs
    __syncthreads();
    if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
    offset *= 2;
  }
  if (t == 0) {
    if (sums) sums[blockIdx.x] = s[count - 1];
    s[count - 1] = 0;
  }
  for (int d = 1; d < count; d *= 2) {  // down: what stands before each
    offset /= 2;
    __syncthreads();
    if (t < d) {
      const int left = offset * (2 * t + 1) - 1, right = offset * (2 * t + 2) - 1, before = s[left];
      s[left] = s[right];
      s[right] += before;
    }
  }
  __syncthreads();
  if (base + 2 * t < n) out[base + 2 * t] = s[2 * t];
  if (base + 2 * t + 1 < n) out[base + 2 * t + 1] = s[2 * t + 1];
}

__global__ void add(int* out, const int* before, int n) {
  const int count = 2 * blockDim.x;
  for (int i = blockIdx.x * count + threadIdx.x; i < n && i < (blockIdx.x + 1) * count; i += blockDim.x)
    out[i] += before[blockIdx.x];
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int n = 3000, threads = 64, blocks = (n + 2 * threads - 1) / (2 * threads);
  std::vector<int> in(n), out(n);
  for (int i = 0; i < n; ++i) in[i] = i * 7 % 13;
  int *d_in, *d_out, *d_sums, *d_before;
  CUDA(cudaMalloc(&d_in, n * sizeof(int)));
  CUDA(cudaMalloc(&d_out, n * sizeof(int)));
  CUDA(cudaMalloc(&d_sums, blocks * sizeof(int)));
  CUDA(cudaMalloc(&d_before, blocks * sizeof(int)));
  CUDA(cudaMemcpy(d_in, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  int wrong = 0, sum = 0;

  const int few = 200;
  hillis_steele<<<1, kThreads>>>(d_in, d_out, few, broken);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(out.data(), d_out, few * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < few; ++i) wrong += out[i] != (sum += in[i]);

  blelloch<<<blocks, threads, 2 * threads * sizeof(int)>>>(d_in, d_out, d_sums, n);
  blelloch<<<1, 16, 32 * sizeof(int)>>>(d_sums, d_before, nullptr, blocks);
  add<<<blocks, threads>>>(d_out, d_before, n);
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(out.data(), d_out, n * sizeof(int), cudaMemcpyDeviceToHost));
  sum = 0;
  for (int i = 0; i < n; sum += in[i++]) wrong += out[i] != sum;

  for (int* array : {d_in, d_out, d_sums, d_before}) CUDA(cudaFree(array));
  std::printf("scan: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
