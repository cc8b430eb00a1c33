// recording_cluster.cu: kernels of Hopper's words whose recordings recording_test.cpp looks into: pairs of blocks that
// send one another tiles, a tile for both, accesses to the other block, mbarriers that are polled and made anew.
// ctest -R "^recording"
#include <cstring>
#include <vector>

#include "gpu/hopper.cuh"
#include "tests/recording.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr int kThreads = 64, kTiles = 3;

__device__ inline void barrier_of_cluster() {
  barrier_cluster_arrive();
  barrier_cluster_wait();
}

struct PairTiles {
  alignas(16) float dS[kThreads], partner_dS[kThreads];
  alignas(8) std::uint64_t full, empty;
};

// Pairs as in a fused backward pass: each block makes a tile, sends it to its partner, adds the partner's to its own.
__global__ void __cluster_dims__(2) pair(const float* in /*[blocks, 64]*/, float* out /*[blocks, 64]*/) {
  PairTiles& s = shared<PairTiles>();
  const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
  const unsigned partner = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    mbarrier_init(&s.empty, kThreads);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  float sum = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    trace_mark("tile", tile);
    // The partner has read the tile before, which was sent from here.
    if (tile > 0) mbarrier_wait_cluster(&s.empty, (tile - 1) & 1);
    s.dS[t] = in[i] + static_cast<float>(tile);
    fence_proxy_async();
    __syncthreads();  // the whole tile is there
    if (t == 0) {
      mbarrier_arrive_expect_tx(&s.full, sizeof s.partner_dS);
      cp_async_bulk_cluster(mapa(s.partner_dS, partner), s.dS, sizeof s.dS, mapa(&s.full, partner));
    }
    mbarrier_wait(&s.full, tile & 1);
    sum += s.dS[t] + s.partner_dS[t];
    mbarrier_arrive_cluster(&s.empty, partner);
  }
  out[i] = sum;
  barrier_of_cluster();
}

// Each block of four writes into the one before it, and then reads from there what it has written.
__global__ void __cluster_dims__(4) around(const float* in /*[blocks, 64]*/, float* out /*[blocks, 64]*/, bool wait) {
  __shared__ float row[kThreads];
  const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
  float* const theirs = mapa(row, (cluster_ctarank() + 3) % 4);
  row[t] = 0;
  barrier_of_cluster();
  theirs[t] = in[i];
  if (wait) barrier_of_cluster();
  out[i] = wait ? theirs[t] + row[t] : row[t];
  barrier_of_cluster();
}

// Half of the threads exit before the cluster's second barrier.
__global__ void __cluster_dims__(2) leaves(const float* in /*[blocks, 64]*/, float* out /*[blocks, 64]*/) {
  const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
  barrier_of_cluster();
  out[i] = in[i];
  if (t >= 32) return;
  barrier_of_cluster();
  out[i] += 1;
}

struct BothTile {
  alignas(1024) __half rows[8][64];
  alignas(8) std::uint64_t full;
};

// Each block loads one half of the tile for both.
__global__ void __cluster_dims__(2)
    both(const __grid_constant__ TensorMap in /*[8, 64]*/, float* out /*[blocks, 64]*/) {
  BothTile& s = shared<BothTile>();
  const int t = threadIdx.x;
  const unsigned rank = cluster_ctarank();
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, sizeof s.rows);
    cp_async_bulk_tensor_multicast(s.rows[4 * rank], &in, &s.full, 0, static_cast<int>(4 * rank), 3);
  }
  mbarrier_wait(&s.full, 0);
  out[blockIdx.x * kThreads + t] = __half2float(s.rows[0][t]);
  barrier_of_cluster();
}

struct LineBytes {
  alignas(16) float line[kThreads], sums[kThreads];
  alignas(8) std::uint64_t ready;
};

// The other words: a line comes by cp.async.bulk, a thread asks again and again whether it is there, the sums are added
// to those in global memory; then the mbarrier ends, and another one is made in its place.
__global__ void words(const float* in /*[64]*/, float* out /*[64]*/, float* sums /*[64]*/) {
  LineBytes& s = shared<LineBytes>();
  const int t = threadIdx.x;
  for (unsigned round = 0; round < 2; ++round) {
    if (t == 0) {
      mbarrier_init(&s.ready, 1 + round);
      fence_mbarrier_init();
      mbarrier_arrive_expect_tx(&s.ready, sizeof s.line);
      if (round > 0) mbarrier_arrive(&s.ready);
      cp_async_bulk_prefetch(in, sizeof s.line);
      cp_async_bulk(s.line, in, sizeof s.line, &s.ready);
    }
    __syncthreads();  // the mbarrier is made
    while (!mbarrier_test_wait(&s.ready, 0)) {
    }
    s.sums[t] = 2 * s.line[t];
    fence_proxy_async();
    __syncthreads();  // the sums are there, and the line is read
    if (t == 0) {
      cp_reduce_async_bulk_add(sums, s.sums, sizeof s.sums);
      cp_async_bulk_store(out, s.sums, sizeof s.sums);
      cp_async_bulk_commit();
      cp_async_bulk_wait<0>();
      mbarrier_inval(&s.ready);
    }
    __syncthreads();  // until here the sums are read from
  }
}

void run_cluster_kernel(const char* name, int blocks, const MachineOptions& options) {
  Machine m(options);
  const auto is = [&](const char* one) { return std::strcmp(name, one) == 0; };
  const std::vector<float> numbers(static_cast<std::size_t>(blocks) * kThreads, 1.0f);
  const auto in = m.upload("in", numbers.data(), numbers.size());
  const auto out = m.upload("out", numbers.data(), numbers.size());
  const auto sums = m.upload("sums", numbers.data(), numbers.size());
  if (is("pair")) launch<PairTiles>(m, pair, dim3(blocks), dim3(kThreads), in.data(), out.data());
  if (is("around")) around<<<blocks, kThreads>>>(in.data(), out.data(), true);
  if (is("around, unordered")) around<<<blocks, kThreads>>>(in.data(), out.data(), false);
  if (is("leaves")) leaves<<<blocks, kThreads>>>(in.data(), out.data());
  if (is("words")) launch<LineBytes>(m, words, dim3(1), dim3(kThreads), in.data(), out.data(), sums.data());
  if (!is("both")) return;
  const std::vector<std::uint16_t> halves(8 * 64, 0x3c00);
  const auto tile = m.upload("tile", halves.data(), halves.size());
  const TensorMap map = tensor_map(reinterpret_cast<const __half*>(tile.data()), std::array<std::uint64_t, 2>{64, 8},
                                   std::array<std::uint64_t, 1>{128}, std::array<std::uint32_t, 2>{64, 4});
  launch<BothTile>(m, both, dim3(blocks), dim3(kThreads), map, out.data());
}

}  // namespace flash::inline FLASH_MACHINE
