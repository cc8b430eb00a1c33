// registers.cu: a warpgroup that copies gives its registers (setmaxnreg) to one that computes; tiles come by bulk
// copies in a ring of two stages with mbarriers, by inline assembly. The last tile is a part of one.
// ./flash check tests/simt/programs/registers.cu; nvcc -gencode=arch=compute_90a,code=sm_90a registers.cu (-arch=sm_90a
// asks nvcc 13 for PTX of compute_90, too, which has no setmaxnreg). With an argument: the warpgroup that copies keeps
// its registers, and the other one waits for them for ever.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

constexpr int kThreads = 128, kTile = 256, kStages = 2;  // threads of a warpgroup, floats of a tile

__device__ uint32_t address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ void arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(address(barrier)) : "memory");
}
// Asks until the phase of this parity is complete.
__device__ void wait(uint64_t* barrier, int parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(address(barrier)), "r"(parity)
                 : "memory");
}

// in [tiles, kTile], out [kTile]: sums of columns. `last`: floats of the last tile, the others of it count as 0; a
// multiple of 4, as of 16 bytes.
__global__ void __launch_bounds__(2 * kThreads, 2) sums(const float* in, float* out, int tiles, int last, bool broken) {
  __shared__ __align__(16) float ring[kStages][kTile];
  __shared__ uint64_t full[kStages], empty[kStages];
  const int t = static_cast<int>(threadIdx.x) % kThreads;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&full[s])), "r"(1));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&empty[s])), "r"(kThreads));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  // 128 registers for each thread at the launch: 40 + 216 for one of each warpgroup.
  if (threadIdx.x < kThreads) {
    if (!broken) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(40));
    if (t > 0) return;
    for (int i = 0; i < tiles; ++i) {
      const int stage = i % kStages, bytes = (i < tiles - 1 ? kTile : last) * static_cast<int>(sizeof(float));
      wait(&empty[stage], i / kStages % 2 ^ 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&full[stage])), "r"(bytes)
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       address(ring[stage])),
                   "l"(in + i * kTile), "r"(bytes), "r"(address(&full[stage]))
                   : "memory");
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(216));  //@ deadlock
    float low = 0, high = 0;
    for (int i = 0; i < tiles; ++i) {
      const int stage = i % kStages, floats = i < tiles - 1 ? kTile : last;
      wait(&full[stage], i / kStages % 2);
      if (t < floats) low += ring[stage][t];
      if (t + kThreads < floats) high += ring[stage][t + kThreads];
      arrive(&empty[stage]);
    }
    out[t] = low, out[t + kThreads] = high;
  }
}

int main(int argc, char**) {
  const int tiles = 5, last = 100, n = (tiles - 1) * kTile + last;
  std::vector<float> in(n), out(kTile), expected(kTile);
  for (int i = 0; i < n; ++i) expected[i % kTile] += in[i] = static_cast<float>(i * 37 % 101);
  float *d_in, *d_out;
  cudaMalloc(&d_in, n * sizeof(float));
  cudaMalloc(&d_out, kTile * sizeof(float));
  cudaMemcpy(d_in, in.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  sums<<<1, 2 * kThreads>>>(d_in, d_out, tiles, last, argc > 1);
  if (cudaMemcpy(out.data(), d_out, kTile * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  int wrong = 0;
  for (int i = 0; i < kTile; ++i)
    if (!(out[i] == expected[i])) std::printf("out[%d]: %g, not %g\n", i, out[i], expected[i]), ++wrong;
  std::printf("registers: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
