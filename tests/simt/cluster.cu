// cluster.cu: clusters of 2, 4 and 8 blocks at work (cluster.hpp): rings, a histogram, tiles between partners.
// Each kernel begins and ends with a barrier of the cluster, as one that reaches into other blocks has to.
// Use: cluster_test.cpp, on the simulator.
#include "gpu/hopper.cuh"
#include "sim/error.hpp"
#include "tests/simt/cluster.hpp"

namespace flash::inline FLASH_MACHINE {

struct Bins {
  unsigned counts[kClusterThreads];
};
struct Mailbox {
  unsigned tile[kClusterThreads];
  alignas(8) std::uint64_t full, empty;
};

__device__ inline void barrier_of_cluster() {
  barrier_cluster_arrive();
  barrier_cluster_wait();
}

template <unsigned kBlocks>
__global__ void __launch_bounds__(kClusterThreads) __cluster_dims__(kBlocks)
    ring(const unsigned* in /*[blocks, 64]*/, unsigned* out /*[blocks, 64]*/) {
  Bins& s = shared<Bins>();
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  s.counts[t] = in[i];
  barrier_of_cluster();
  out[i] = mapa(s.counts, (cluster_ctarank() + 1) % cluster_nctarank())[t];
  barrier_of_cluster();
}

// Each block writes into the next one, with a variable of its own for each kernel.
template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks) static_ring(const unsigned* in, unsigned* out) {
  __shared__ unsigned row[kClusterThreads];
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  barrier_of_cluster();
  mapa(row, (cluster_ctarank() + kBlocks - 1) % kBlocks)[t] = in[i];
  barrier_of_cluster();
  out[i] = row[t];
}

template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks) global_ring(const unsigned* in, unsigned* out) {
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  const unsigned first = blockIdx.x - cluster_ctarank();
  const unsigned before = first + (cluster_ctarank() + kBlocks - 1) % kBlocks;
  out[before * kClusterThreads + t] = in[i];
  barrier_of_cluster();
  out[i] += 0;  // as the next block has written it
}

template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks) histogram(const unsigned* in, unsigned* out) {
  Bins& s = shared<Bins>();
  const unsigned t = threadIdx.x;
  s.counts[t] = 0;
  barrier_of_cluster();
  for (unsigned j = 0; j < 8; ++j) {
    const unsigned number = in[blockIdx.x * kClusterThreads + t] * (j + 1) % (kClusterThreads * kBlocks);
    atomicAdd(mapa(s.counts, number / kClusterThreads) + number % kClusterThreads, 1);
  }
  barrier_of_cluster();
  out[blockIdx.x * kClusterThreads + t] = s.counts[t];
}

template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks) exchange(const unsigned* in, unsigned* out) {
  Mailbox& s = shared<Mailbox>();
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  const unsigned partner = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, kClusterThreads);
    mbarrier_init(&s.empty, 2);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  unsigned sum = 0;
  for (unsigned tile = 0; tile < 3; ++tile) {
    if (tile > 0) mbarrier_wait_cluster(&s.empty, (tile - 1) & 1);
    mapa(s.tile, partner)[t] = in[i] + tile;
    mbarrier_arrive_cluster(&s.full, partner);
    mbarrier_wait_cluster(&s.full, tile & 1);
    sum += s.tile[kClusterThreads - 1 - t];
    __syncwarp();
    if (t % 32 == 0) mbarrier_arrive_cluster(&s.empty, partner);
  }
  out[i] = sum;
  barrier_of_cluster();
}

template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks) spin(const unsigned* in, unsigned* out) {
  __shared__ unsigned row[kClusterThreads], flag;
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  const unsigned next = (cluster_ctarank() + 1) % kBlocks;
  if (t == 0) flag = 0;
  barrier_of_cluster();
  // The block of rank 0 begins; each of the others goes on when the one before has come.
  if (cluster_ctarank() > 0) {
    if (t == 0) {
      while (atomicAdd(&flag, 0) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
  }
  mapa(row, next)[t] = in[i] + (cluster_ctarank() > 0 ? row[t] : 0);
  __syncthreads();
  if (t == 0) {
    __threadfence();
    atomicExch(mapa(&flag, next), 1);
  }
  barrier_of_cluster();
  out[i] = row[t];
}

struct Letters {
  alignas(16) unsigned out[kClusterThreads], in[kClusterThreads];
  alignas(8) std::uint64_t full, empty;
};

template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks) send(const unsigned* in, unsigned* out) {
  Letters& s = shared<Letters>();
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  const unsigned partner = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    mbarrier_init(&s.empty, kClusterThreads);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  unsigned sum = 0;
  for (unsigned letter = 0; letter < 3; ++letter) {
    if (letter > 0) mbarrier_wait_cluster(&s.empty, (letter - 1) & 1);
    s.out[t] = in[i] + letter;
    fence_proxy_async();
    __syncthreads();
    if (t == 0) {
      mbarrier_arrive_expect_tx(&s.full, sizeof s.in);
      cp_async_bulk_cluster(mapa(s.in, partner), s.out, sizeof s.out, mapa(&s.full, partner));
    }
    mbarrier_wait(&s.full, letter & 1);
    sum += s.in[kClusterThreads - 1 - t];
    mbarrier_arrive_cluster(&s.empty, partner);
  }
  out[i] = sum;
  barrier_of_cluster();
}

// Boxes of 8 rows, of 64 elements each, of which every block loads 8 / kBlocks.
struct SharedBox {
  alignas(1024) unsigned short rows[8][64];
  alignas(8) std::uint64_t full, empty;
};

template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks)
    multicast(const __grid_constant__ TensorMap in /*[boxes * 8, 64]*/, unsigned boxes, unsigned* out) {
  SharedBox& s = shared<SharedBox>();
  constexpr unsigned kRows = 8 / kBlocks;
  const unsigned t = threadIdx.x, rank = cluster_ctarank();
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    mbarrier_init(&s.empty, kBlocks);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  unsigned sum = 0;
  for (unsigned box = 0; box < boxes; ++box) {
    if (t == 0) {
      mbarrier_arrive_expect_tx(&s.full, sizeof s.rows);
      if (box > 0) mbarrier_wait_cluster(&s.empty, (box - 1) & 1);
      cp_async_bulk_tensor_multicast(s.rows[rank * kRows], &in, &s.full, 0, static_cast<int>(box * 8 + rank * kRows),
                                     (1u << kBlocks) - 1);
    }
    mbarrier_wait(&s.full, box & 1);
    sum += s.rows[rank][((t / 8 ^ rank) * 8) + t % 8];  // as the 128-byte swizzle puts it
    __syncthreads();
    if (t < kBlocks) mbarrier_arrive_cluster(&s.empty, t);
  }
  out[blockIdx.x * kClusterThreads + t] = sum;
  barrier_of_cluster();
}

// Without __cluster_dims__.
__global__ void alone(const unsigned* in, unsigned* out) {
  Mailbox& s = shared<Mailbox>();
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  if (t == 0) {
    mbarrier_init(&s.full, kClusterThreads);
    fence_mbarrier_init();
  }
  barrier_cluster_arrive();
  barrier_cluster_wait();
  mapa(s.tile, cluster_ctarank())[t] = in[i];
  mbarrier_arrive_cluster(&s.full, cluster_nctarank() - 1);
  mbarrier_wait(&s.full, 0);
  out[i] = s.tile[kClusterThreads - 1 - t];
}

// Threads that have exited are not waited for.
template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks) exits(const unsigned* in, unsigned* out) {
  Bins& s = shared<Bins>();
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  s.counts[t] = in[i];
  if (t >= 32) return;
  barrier_of_cluster();
  const unsigned* const next = mapa(s.counts, (cluster_ctarank() + 1) % kBlocks);
  out[i] = next[t], out[i + 32] = next[t + 32];
  barrier_of_cluster();
}

template <unsigned kBlocks>
__global__ void __cluster_dims__(kBlocks) traps(const unsigned* in, unsigned* out) {
  const unsigned t = threadIdx.x, i = blockIdx.x * kClusterThreads + t;
  if (blockIdx.x == 1 && t == 3) __trap();
  barrier_of_cluster();
  out[i] = in[i];
}

__global__ void __cluster_dims__(2, 2, 2) ranks(const unsigned*, unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const dim3 inside = __clusterRelativeBlockIdx(), which = __clusterIdx(), all = __clusterGridDimInClusters();
  const bool right = cluster_ctarank() == inside.x + 2 * (inside.y + 2 * inside.z) && cluster_nctarank() == 8 &&
                     all.x == 2 && all.y == 1 && all.z == 3 && which.y == 0;
  if (threadIdx.x == 0) out[block] = right ? 100 * (which.x + 2 * which.z) + cluster_ctarank() : ~0u;
}

__global__ void __cluster_dims__(4, 4) too_large(const unsigned*, unsigned*) {}

using Kernel = void (*)(const unsigned*, unsigned*);

template <class Shared>
ClusterResult run(Machine& m, Kernel kernel, dim3 grid) {
  const std::size_t n = std::size_t{grid.x} * grid.y * grid.z * kClusterThreads;
  ClusterResult result;
  result.out.resize(n);
  std::vector<unsigned> numbers(n);
  for (std::size_t i = 0; i < n; ++i) numbers[i] = static_cast<unsigned>(i);
  const auto in = m.upload("in", numbers.data(), n);
  const auto out = m.upload("out", numbers.data(), n);
  launch<Shared>(m, kernel, grid, dim3(kClusterThreads), in.data(), out.data());
  m.download(result.out.data(), out);
  result.findings = m.findings(), result.ledger = m.reports().back().ledger;
  return result;
}

template <unsigned kBlocks>
ClusterResult run_multicast(Machine& m, unsigned clusters) {
  constexpr unsigned kBoxes = 3;
  std::vector<std::uint16_t> numbers(kBoxes * 8 * 64);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(i);
  ClusterResult result;
  result.out.resize(std::size_t{clusters} * kBlocks * kClusterThreads);
  const auto in = m.upload("in", numbers.data(), numbers.size());
  const auto out = m.upload("out", result.out.data(), result.out.size());
  const TensorMap map =
      tensor_map(reinterpret_cast<const __half*>(in.data()), std::array<std::uint64_t, 2>{64, kBoxes * 8},
                 std::array<std::uint64_t, 1>{128}, std::array<std::uint32_t, 2>{64, 8 / kBlocks});
  launch<SharedBox>(m, multicast<kBlocks>, dim3(clusters * kBlocks), dim3(kClusterThreads), map, kBoxes, out.data());
  m.download(result.out.data(), out);
  result.findings = m.findings(), result.ledger = m.reports().back().ledger;
  return result;
}

template <unsigned kBlocks>
ClusterResult run(Machine& m, const std::string& name, unsigned clusters) {
  const dim3 grid(kBlocks * clusters);
  if (name == "send") return run<Letters>(m, send<kBlocks>, grid);
  if (name == "multicast") return run_multicast<kBlocks>(m, clusters);
  if (name == "ring") return run<Bins>(m, ring<kBlocks>, grid);
  if (name == "static ring") return run<NoShared>(m, static_ring<kBlocks>, grid);
  if (name == "global ring") return run<NoShared>(m, global_ring<kBlocks>, grid);
  if (name == "histogram") return run<Bins>(m, histogram<kBlocks>, grid);
  if (name == "exchange") return run<Mailbox>(m, exchange<kBlocks>, grid);
  if (name == "spin") return run<NoShared>(m, spin<kBlocks>, grid);
  if (name == "exits") return run<Bins>(m, exits<kBlocks>, grid);
  if (name == "trap") return run<NoShared>(m, traps<kBlocks>, grid);
  if (name == "alone") return run<Mailbox>(m, alone, grid);
  if (name == "ranks") return run<NoShared>(m, ranks, dim3(4, 2, 6));
  refuse("case", name, "one of cluster.hpp's", "see there");
}

ClusterResult run_cluster(const MachineOptions& options, const std::string& name, unsigned blocks, unsigned clusters) {
  Machine m(options);
  return blocks == 2 ? run<2>(m, name, clusters) : blocks == 4 ? run<4>(m, name, clusters) : run<8>(m, name, clusters);
}

void launch_ragged_clusters(const MachineOptions& options, unsigned blocks) {
  Machine m(options);
  run<Bins>(m, ring<2>, dim3(blocks));
}
void launch_large_clusters(const MachineOptions& options) {
  Machine m(options);
  run<NoShared>(m, too_large, dim3(4, 4));
}

}  // namespace flash::inline FLASH_MACHINE
