// dot_product.cu: a dot product with a loop over the grid's stride, managed memory and cooperative groups: each warp's
// sum by its tile, then one atomic per warp.
// ./flash check tests/simt/programs/dot_product.cu; nvcc -arch=native dot_product.cu. With an argument: += for
// atomicAdd.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <cstdio>
#include <cstdlib>

namespace cg = cooperative_groups;

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

__global__ void dot(const double* a, const double* b, double* result, int n, bool broken) {
  const cg::thread_block block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  double sum = 0;
  for (int i = blockIdx.x * blockDim.x + block.thread_rank(); i < n; i += blockDim.x * gridDim.x) sum += a[i] * b[i];
  sum = cg::reduce(warp, sum, cg::plus<double>());
  if (warp.thread_rank() == 0) {
    if (broken)
      *result += sum;  //@ race
    else
      atomicAdd(result, sum);
  }
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int n = 3000;
  double *a, *b, *result, expected = 0;
  CUDA(cudaMallocManaged(&a, n * sizeof(double)));
  CUDA(cudaMallocManaged(&b, n * sizeof(double)));
  CUDA(cudaMallocManaged(&result, sizeof(double)));
  for (int i = 0; i < n; ++i) {
    a[i] = i % 10, b[i] = i % 7 - 3;
    expected += a[i] * b[i];
  }
  *result = 0;
  cudaDeviceProp properties;
  CUDA(cudaGetDeviceProperties(&properties, 0));
  const int threads = properties.maxThreadsPerBlock / 8;
  dot<<<4, threads>>>(a, b, result, n, broken);
  CUDA(cudaGetLastError());
  CUDA(cudaDeviceSynchronize());
  const bool wrong = *result != expected;
  for (double* array : {a, b, result}) CUDA(cudaFree(array));
  std::printf("dot_product: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
