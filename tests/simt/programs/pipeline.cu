// pipeline.cu: a moving average over tiles in shared memory that asynchronous copies bring one ahead: two stages, of
// which one is filled while the other is read; the last tile is filled up with zeros. Then the same by memcpy_async.
// ./flash check tests/simt/programs/pipeline.cu; nvcc -arch=native pipeline.cu (sm_80 or newer). With an argument: the
// wait leaves the tile that is read next under way.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kThreads = 64, kTile = 2 * kThreads;

// in [n], out [tiles][kTile]: the mean of each element of a tile and its neighbours in it. Copies of 8 bytes.
__global__ void smooth(const float* in, float* out, int n, int tiles, bool broken) {
  __shared__ __align__(16) float stage[2][kTile];
  const int t = threadIdx.x;
  const auto fill = [&](int tile) {
    const int at = tile * kTile + 2 * t, valid = tile < tiles ? max(0, min(2, n - at)) : 0;
    if (tile < tiles) __pipeline_memcpy_async(&stage[tile % 2][2 * t], valid > 0 ? &in[at] : in, 8, 8 - 4 * valid);
    __pipeline_commit();
  };
  fill(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fill(tile + 1);
    __pipeline_wait_prior(broken ? 2 : 1);
    __syncthreads();
    for (int i = t; i < kTile; i += kThreads) {
      const float left = stage[tile % 2][max(i - 1, 0)];  //@ asynchronous copy
      out[tile * kTile + i] = (left + stage[tile % 2][i] + stage[tile % 2][min(i + 1, kTile - 1)]) / 3;
    }
    __syncthreads();
  }
}

// The first tile alone; the block copies it together, in pieces of 4 bytes, because the size allows no wider ones.
__global__ void smooth_first(const float* in, float* out) {
  namespace cg = cooperative_groups;
  __shared__ __align__(16) float tile[kTile];
  const cg::thread_block block = cg::this_thread_block();
  cg::memcpy_async(block, tile, in, sizeof tile - sizeof(float));
  if (threadIdx.x == 0) tile[kTile - 1] = in[kTile - 1];
  cg::wait(block);
  for (int i = threadIdx.x; i < kTile; i += kThreads)
    out[i] = (tile[max(i - 1, 0)] + tile[i] + tile[min(i + 1, kTile - 1)]) / 3;
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int tiles = 5, n = tiles * kTile - 37;
  std::vector<float> in(n), padded(tiles * kTile), expected(tiles * kTile), out(tiles * kTile), first(kTile);
  for (int i = 0; i < n; ++i) padded[i] = in[i] = i * 7 % 19;
  for (int i = 0; i < tiles * kTile; ++i) {
    const int j = i % kTile;
    expected[i] = (padded[j == 0 ? i : i - 1] + padded[i] + padded[j == kTile - 1 ? i : i + 1]) / 3;
  }
  float *d_in, *d_out, *d_first;
  CUDA(cudaMalloc(&d_in, n * sizeof(float)));
  CUDA(cudaMalloc(&d_out, out.size() * sizeof(float)));
  CUDA(cudaMalloc(&d_first, kTile * sizeof(float)));
  CUDA(cudaMemcpy(d_in, in.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  smooth<<<1, kThreads>>>(d_in, d_out, n, tiles, broken);
  smooth_first<<<1, kThreads>>>(d_in, d_first);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(out.data(), d_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(first.data(), d_first, kTile * sizeof(float), cudaMemcpyDeviceToHost));
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_out));
  CUDA(cudaFree(d_first));
  bool wrong = false;  // a GPU divides by 3 with one rounding, as the host does
  for (int i = 0; i < tiles * kTile; ++i) wrong |= !(std::fabs(out[i] - expected[i]) <= 1e-6f * expected[i]);
  for (int i = 0; i < kTile; ++i) wrong |= !(std::fabs(first[i] - expected[i]) <= 1e-6f * expected[i]);
  std::printf("pipeline: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
