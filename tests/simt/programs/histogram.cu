// histogram.cu: how often each byte occurs: atomics on global memory, then on a private histogram per block in shared
// memory, added up at the end.
// ./flash check tests/simt/programs/histogram.cu; nvcc -arch=native histogram.cu. With an argument: the private bins
// are not cleared.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kBins = 256;

__global__ void global_atomics(const unsigned char* in, unsigned* bins, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&bins[in[i]], 1);
}

__global__ void private_bins(const unsigned char* in, unsigned* bins, int n, bool broken) {
  __shared__ unsigned mine[kBins];
  for (int b = threadIdx.x; b < kBins && !broken; b += blockDim.x) mine[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(&mine[in[i]], 1);  //@ uninitialised
  __syncthreads();
  for (int b = threadIdx.x; b < kBins; b += blockDim.x)
    if (mine[b] > 0) atomicAdd(&bins[b], mine[b]);
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int n = 10000;
  std::vector<unsigned char> in(n);
  std::vector<unsigned> expected(kBins), bins(kBins);
  for (int i = 0; i < n; ++i) ++expected[in[i] = static_cast<unsigned char>(i * i / 7)];
  unsigned char* d_in;
  unsigned* d_bins;
  CUDA(cudaMalloc(&d_in, n));
  CUDA(cudaMalloc(&d_bins, kBins * sizeof(unsigned)));
  CUDA(cudaMemcpy(d_in, in.data(), n, cudaMemcpyHostToDevice));
  int wrong = 0;
  for (int kernel = 0; kernel < 2; ++kernel) {
    CUDA(cudaMemset(d_bins, 0, kBins * sizeof(unsigned)));
    if (kernel == 0)
      global_atomics<<<8, 128>>>(d_in, d_bins, n);
    else
      private_bins<<<8, 128>>>(d_in, d_bins, n, broken);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(bins.data(), d_bins, kBins * sizeof(unsigned), cudaMemcpyDeviceToHost));
    wrong += bins != expected;
  }
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_bins));
  std::printf("histogram: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
