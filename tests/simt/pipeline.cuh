// pipeline.cuh: attention as Hopper's kernels do it: a warpgroup that loads tiles by TMA, two that multiply by wgmma,
// take turns, and store through shared memory. Full and empty mbarriers, named barriers, setmaxnreg, stmatrix.
// Use: pipeline.cu launches it. A header, so that tests/mutants can plant bugs in it.
#pragma once
#include "gpu/hopper.cuh"

namespace flash::inline FLASH_MACHINE {

constexpr int kConsumers = 2, kStages = 2, kTile = 64 * 64;

struct Pipeline {
  alignas(1024) __half q[kConsumers][kTile];  // O's tile at the end
  alignas(1024) __half k[kStages][kTile];
  alignas(1024) __half v[kStages][kTile];
  std::uint64_t q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};

__device__ inline unsigned two_halves(float low, float high) {
  return __half_as_ushort(__float2half(low)) | static_cast<unsigned>(__half_as_ushort(__float2half(high))) << 16;
}

// O [rows][64] of Q [rows][64], K and V [keys][64]; a block has 128 rows of Q.
__global__ void __launch_bounds__(384, 1)
    attention(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
              const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o, int keys) {
  Pipeline& s = shared<Pipeline>();
  const int group = threadIdx.x / 128, t = threadIdx.x % 128, warp = t / 32, lane = t % 32;
  const int tiles = (keys + 63) / 64, first_row = blockIdx.x * 128;
  if (threadIdx.x == 0) {
    mbarrier_init(&s.q_full, 1);
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&s.k_full[i], 1), mbarrier_init(&s.v_full[i], 1);
      mbarrier_init(&s.k_empty[i], 4 * kConsumers), mbarrier_init(&s.v_empty[i], 4 * kConsumers);
    }
    fence_mbarrier_init();
  }
  __syncthreads();

  if (group == kConsumers) {  // the producer
    setmaxnreg_dec<40>();
    if (t != 0) return;
    mbarrier_arrive_expect_tx(&s.q_full, sizeof s.q);
    for (int i = 0; i < kConsumers; ++i) cp_async_bulk_tensor(s.q[i], &q, &s.q_full, 0, first_row + i * 64);
    for (int j = 0; j < tiles; ++j) {
      const int stage = j % kStages;
      const unsigned parity = j / kStages % 2;
      mbarrier_wait(&s.k_empty[stage], parity ^ 1);
      mbarrier_arrive_expect_tx(&s.k_full[stage], sizeof s.k[0]);
      cp_async_bulk_tensor(s.k[stage], &k, &s.k_full[stage], 0, j * 64);
      mbarrier_wait(&s.v_empty[stage], parity ^ 1);
      mbarrier_arrive_expect_tx(&s.v_full[stage], sizeof s.v[0]);
      cp_async_bulk_tensor(s.v[stage], &v, &s.v_full[stage], 0, j * 64);
    }
    return;
  }

  setmaxnreg_inc<232>();
  if (group == 1) bar_arrive(8, 256);  // the first turn is the first consumer's
  float acc[32], maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int i = 0; i < 32; ++i) acc[i] = 0;
  mbarrier_wait(&s.q_full, 0);
  for (int j = 0; j < tiles; ++j) {
    const int stage = j % kStages;
    const unsigned parity = j / kStages % 2;
    float score[32];
    mbarrier_wait(&s.k_full[stage], parity);
    bar_sync(8 + group, 256);
    wgmma_fence();
    for (int step = 0; step < 4; ++step)
      wgmma_m64nNk16<__half>(score, matrix_descriptor(s.q[group]) + step * 32,
                             matrix_descriptor(s.k[stage]) + step * 32, step > 0);
    wgmma_commit();
    bar_arrive(9 - group, 256);
    wgmma_wait<0>(score);
    if (lane == 0) mbarrier_arrive(&s.k_empty[stage]);

    unsigned p[4][4];
    for (int half = 0; half < 2; ++half) {
      float now = maximum[half];
      for (int i = 0; i < 16; ++i) {
        float& x = score[i / 2 * 4 + half * 2 + i % 2];
        x = j * 64 + i / 2 * 8 + lane % 4 * 2 + i % 2 < keys ? 0.125f * x : -INFINITY;
        now = fmaxf(now, x);
      }
      for (int d = 1; d < 4; d *= 2) now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, d));
      const float scale = expf(maximum[half] - now);
      maximum[half] = now, sum[half] *= scale;
      for (int i = 0; i < 16; ++i) {
        float& x = score[i / 2 * 4 + half * 2 + i % 2];
        x = expf(x - now), sum[half] += x;
        acc[i / 2 * 4 + half * 2 + i % 2] *= scale;
      }
    }
    for (int step = 0; step < 4; ++step)
      for (int r = 0; r < 4; ++r) p[step][r] = two_halves(score[step * 8 + r * 2], score[step * 8 + r * 2 + 1]);

    mbarrier_wait(&s.v_full[stage], parity);
    wgmma_fence();
    for (int step = 0; step < 4; ++step)
      wgmma_m64nNk16<__half, Major::MN>(acc, p[step], matrix_descriptor(s.v[stage]) + step * 2048, true);
    wgmma_commit();
    wgmma_wait<0>(acc, p);
    if (lane == 0) mbarrier_arrive(&s.v_empty[stage]);
  }
  if (group == 0) bar_sync(8, 256);  // the turn that the other one gave last

  for (int half = 0; half < 2; ++half) {
    for (int d = 1; d < 4; d *= 2) sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], d);
    for (int i = 0; i < 16; ++i) acc[i / 2 * 4 + half * 2 + i % 2] /= sum[half];
  }
  const int row = warp * 16 + lane % 16;
  for (int step = 0; step < 4; ++step) {
    unsigned four[4];
    for (int r = 0; r < 4; ++r) four[r] = two_halves(acc[step * 8 + r * 2], acc[step * 8 + r * 2 + 1]);
    stmatrix_x4(&s.q[group][row * 64 + ((step * 2 + lane / 16) ^ (row % 8)) * 8], four);
  }
  fence_proxy_async();
  bar_sync(1 + group, 128);
  if (t != 0) return;
  cp_async_bulk_tensor_store(&o, s.q[group], 0, first_row + group * 64);
  cp_async_bulk_commit();
  cp_async_bulk_wait<0>();
}

}  // namespace flash::inline FLASH_MACHINE
