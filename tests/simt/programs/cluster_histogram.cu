// cluster_histogram.cu: a histogram whose bins lie in the shared memory of a cluster's blocks, as in the CUDA
// Programming Guide ("Distributed Shared Memory"); launched with cudaLaunchKernelEx.
// ./flash check tests/simt/programs/cluster_histogram.cu; nvcc -arch=sm_90 cluster_histogram.cu.
// With an argument a block does not wait for the others before it ends.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <vector>

namespace cg = cooperative_groups;

constexpr int kBins = 256, kThreads = 128, kBlocks = 8;

__global__ void histogram(const int* numbers, int n, int* bins, bool waits) {
  extern __shared__ int own[];
  const cg::cluster_group cluster = cg::this_cluster();
  const int per_block = kBins / static_cast<int>(cluster.num_blocks());
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) own[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const int bin = numbers[i];
    atomicAdd(cluster.map_shared_rank(own, bin / per_block) + bin % per_block, 1);  //@ cluster
  }
  if (waits) cluster.sync();
  const int first = static_cast<int>(cluster.block_rank()) * per_block;
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) atomicAdd(bins + first + i, atomicAdd(own + i, 0));
}

int main(int argc, char**) {
  const int n = 5000;
  std::vector<int> numbers(n), expected(kBins), bins(kBins);
  for (int i = 0; i < n; ++i) ++expected[numbers[i] = i * 7919 % 1009 % kBins];
  int *d_numbers, *d_bins;
  cudaMalloc(&d_numbers, n * sizeof(int));
  cudaMalloc(&d_bins, kBins * sizeof(int));
  cudaMemcpy(d_numbers, numbers.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemset(d_bins, 0, kBins * sizeof(int));

  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = 4;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = kBlocks, config.blockDim = kThreads;
  config.dynamicSmemBytes = kBins / 4 * sizeof(int);
  config.attrs = &attribute, config.numAttrs = 1;
  const cudaError_t error =
      cudaLaunchKernelEx(&config, histogram, static_cast<const int*>(d_numbers), n, d_bins, argc == 1);
  if (error != cudaSuccess) std::printf("%s\n", cudaGetErrorString(error));
  cudaMemcpy(bins.data(), d_bins, kBins * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_numbers);
  cudaFree(d_bins);
  std::printf("cluster_histogram: %s\n", bins == expected ? "right" : "WRONG");
  return bins != expected;
}
