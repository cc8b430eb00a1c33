// stencil.cu: a weighted sum of each element's neighbours: the tile and its halo in shared memory, the weights in
// constant memory, two streams for two halves of the array.
// ./flash check tests/simt/programs/stencil.cu; nvcc -arch=native stencil.cu. With an argument: the halo is forgotten
// when the tile's size is chosen.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kRadius = 3;
__constant__ float weights[2 * kRadius + 1];

// Elements `begin` to `end` of n.
__global__ void stencil(const float* in, float* out, int begin, int end, int n) {
  extern __shared__ float tile[];
  const int t = threadIdx.x, first = begin + blockIdx.x * blockDim.x, i = first + t;
  for (int j = t; j < blockDim.x + 2 * kRadius; j += blockDim.x) {
    const int from = first + j - kRadius;
    tile[j] = from >= 0 && from < n ? in[from] : 0;  //@ out of bounds
  }
  __syncthreads();
  if (i >= end) return;
  float sum = 0;
  for (int k = 0; k <= 2 * kRadius; ++k) sum = fmaf(weights[k], tile[t + k], sum);
  out[i] = sum;
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int n = 1000, threads = 128, half = n / 2, blocks = (half + threads - 1) / threads;
  const float w[2 * kRadius + 1] = {1, 2, 3, 4, 3, 2, 1};
  std::vector<float> in(n), out(n);
  for (int i = 0; i < n; ++i) in[i] = static_cast<float>(i * 13 % 31);
  float *d_in, *d_out;
  CUDA(cudaMalloc(&d_in, n * sizeof(float)));
  CUDA(cudaMalloc(&d_out, n * sizeof(float)));
  CUDA(cudaMemcpyToSymbol(weights, w, sizeof w));
  CUDA(cudaMemcpy(d_in, in.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  cudaStream_t streams[2];
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  CUDA(cudaEventRecord(begin));
  for (int s = 0; s < 2; ++s) {
    CUDA(cudaStreamCreate(&streams[s]));
    const size_t bytes = (threads + (broken ? 0 : 2 * kRadius)) * sizeof(float);
    stencil<<<blocks, threads, bytes, streams[s]>>>(d_in, d_out, s * half, (s + 1) * half, n);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpyAsync(&out[s * half], d_out + s * half, half * sizeof(float), cudaMemcpyDeviceToHost, streams[s]));
  }
  for (cudaStream_t stream : streams) CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaEventRecord(end));
  CUDA(cudaEventSynchronize(end));
  float milliseconds = -1;
  CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  int wrong = milliseconds < 0;
  for (int i = 0; i < n; ++i) {
    float expected = 0;
    for (int k = -kRadius; k <= kRadius; ++k) expected += i + k >= 0 && i + k < n ? w[k + kRadius] * in[i + k] : 0;
    wrong += out[i] != expected;
  }
  for (cudaStream_t stream : streams) CUDA(cudaStreamDestroy(stream));
  CUDA(cudaEventDestroy(begin));
  CUDA(cudaEventDestroy(end));
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_out));
  std::printf("stencil: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
