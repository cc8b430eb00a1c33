// softmax.cu: softmax of each row by one block: the row's maximum and sum by shuffles within warps and shared memory
// between them.
// ./flash check tests/simt/programs/softmax.cu; nvcc -arch=native softmax.cu. With an argument: a barrier is missing.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

struct Maximum {
  static constexpr float identity = -INFINITY;
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  static constexpr float identity = 0;
  __device__ static float of(float a, float b) { return a + b; }
};

// Of the whole block; every thread gets it.
template <class Operation>
__device__ float block_reduce(float value, bool broken) {
  __shared__ float of_warp[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2)
    value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
  if (lane == 0) of_warp[warp] = value;
  if (!broken) __syncthreads();
  value = lane < blockDim.x / 32 ? of_warp[lane] : Operation::identity;  //@ race
  for (int offset = 16; offset > 0; offset /= 2)
    value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
  __syncthreads();
  return value;
}

__global__ void softmax(const float* in, float* out, int columns, bool broken) {
  const float* x = in + blockIdx.x * columns;
  float* y = out + blockIdx.x * columns;
  float maximum = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) maximum = fmaxf(maximum, x[i]);
  maximum = block_reduce<Maximum>(maximum, false);
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(x[i] - maximum);
  sum = block_reduce<Sum>(sum, broken);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) y[i] = expf(x[i] - maximum) / sum;
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int rows = 5, columns = 300;
  std::vector<float> in(rows * columns), out(rows * columns);
  for (int i = 0; i < rows * columns; ++i) in[i] = static_cast<float>(i * 31 % 97) / 8 - 1000;
  float *d_in, *d_out;
  CUDA(cudaMalloc(&d_in, in.size() * sizeof(float)));
  CUDA(cudaMalloc(&d_out, out.size() * sizeof(float)));
  CUDA(cudaMemcpy(d_in, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice));
  softmax<<<rows, 128>>>(d_in, d_out, columns, broken);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(out.data(), d_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int r = 0; r < rows; ++r) {
    double maximum = -INFINITY, sum = 0;
    for (int c = 0; c < columns; ++c) maximum = std::fmax(maximum, in[r * columns + c]);
    for (int c = 0; c < columns; ++c) sum += std::exp(in[r * columns + c] - maximum);
    for (int c = 0; c < columns; ++c)
      wrong += !(std::fabs(out[r * columns + c] - std::exp(in[r * columns + c] - maximum) / sum) <= 1e-6);
  }
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_out));
  std::printf("softmax: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
