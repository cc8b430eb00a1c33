// conformance_cluster.cu: clusters of blocks, for comparison with an H200 (sm_90a): ranks and shapes, loads, stores and
// atomics of other blocks' shared memory, rings of arrivals at other blocks' mbarriers,
// copies of bytes and boxes to other blocks. All are exact.
// Use: run_cluster_conformance(options); h200.sh records it with -DFLASH_RECORD=run_cluster_conformance.
#include "gpu/hopper.cuh"
#include "tests/simt/conformance.cuh"

namespace flash::inline FLASH_MACHINE {

constexpr unsigned kClusterBlocks = 4, kOfBlock = 64;

__device__ inline void all_of_cluster() {
  barrier_cluster_arrive();
  barrier_cluster_wait();
}

// Of each block: its rank, its cluster's size, and its number.
__global__ void __cluster_dims__(2, 2, 2) cluster_ranks(unsigned* out /*[blocks, 3]*/) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x > 0) return;
  out[block * 3] = cluster_ctarank();
  out[block * 3 + 1] = cluster_nctarank();
  out[block * 3 + 2] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16;
}
__global__ void no_cluster_ranks(unsigned* out /*[blocks, 2]*/) {
  if (threadIdx.x > 0) return;
  all_of_cluster();
  out[blockIdx.x * 2] = cluster_ctarank();
  out[blockIdx.x * 2 + 1] = cluster_nctarank();
}

// Each thread reads the same place of all blocks, and writes to another one of the block behind its own.
__global__ void __cluster_dims__(kClusterBlocks) cluster_map(unsigned* out /*[blocks, 64, 2]*/) {
  __shared__ unsigned given[kOfBlock], taken[kOfBlock];
  const unsigned t = threadIdx.x, i = blockIdx.x * kOfBlock + t;
  given[t] = mix(i);
  all_of_cluster();
  unsigned sum = 0;
  for (unsigned rank = 0; rank < cluster_nctarank(); ++rank) sum = sum * 31 + mapa(given, rank)[t];
  mapa(taken, (cluster_ctarank() + 1) % cluster_nctarank())[t ^ 5] = sum + t;
  all_of_cluster();
  out[i * 2] = sum;
  out[i * 2 + 1] = taken[t];
}

__global__ void __cluster_dims__(kClusterBlocks) cluster_atomics(unsigned* out /*[blocks, 64, 3]*/) {
  __shared__ unsigned sums[kOfBlock], most[kOfBlock], bits[kOfBlock];
  const unsigned t = threadIdx.x, i = blockIdx.x * kOfBlock + t;
  sums[t] = most[t] = bits[t] = 0;
  all_of_cluster();
  for (unsigned j = 0; j < 16; ++j) {
    const unsigned word = mix(i * 16 + j), to = word >> 8 & 63;
    atomicAdd(mapa(sums, word & 3) + to, word >> 16);
    atomicMax(mapa(most, word >> 2 & 3) + to, word);
    atomicXor(mapa(bits, word >> 4 & 3) + to, word);
  }
  all_of_cluster();
  out[i * 3] = sums[t], out[i * 3 + 1] = most[t], out[i * 3 + 2] = bits[t];
}

// A word goes round the cluster, each block changing it, three times. Two stages, full and empty. A stage is given back
// by a thread that has only read it: kRelaxed, by an arrival that releases no more than that.
template <bool kRelaxed>
__global__ void __cluster_dims__(kClusterBlocks) cluster_ring(unsigned* out /*[blocks, 64]*/) {
  __shared__ unsigned word[2][kOfBlock];
  __shared__ alignas(8) std::uint64_t full[2], empty[2];
  const unsigned t = threadIdx.x, i = blockIdx.x * kOfBlock + t, blocks = cluster_nctarank();
  const unsigned next = (cluster_ctarank() + 1) % blocks, before = (cluster_ctarank() + blocks - 1) % blocks;
  if (t == 0) {
    for (unsigned stage = 0; stage < 2; ++stage) mbarrier_init(full + stage, kOfBlock);
    for (unsigned stage = 0; stage < 2; ++stage) mbarrier_init(empty + stage, kOfBlock);
    fence_mbarrier_init();
  }
  all_of_cluster();
  unsigned mine = mix(i);
  for (unsigned turn = 0; turn < 3 * blocks; ++turn) {
    const unsigned stage = turn % 2, parity = turn / 2 & 1;
    if (turn >= 2) mbarrier_wait_cluster(empty + stage, parity ^ 1);
    mapa(word[stage], next)[t] = mine;
    mbarrier_arrive_cluster(full + stage, next);
    mbarrier_wait_cluster(full + stage, parity);
    mine = mix(word[stage][kOfBlock - 1 - t] + turn);
    if (turn + 2 >= 3 * blocks) continue;
    if constexpr (kRelaxed)
      mbarrier_arrive_cluster_relaxed(empty + stage, before);
    else
      mbarrier_arrive_cluster(empty + stage, before);
  }
  out[i] = mine;
  all_of_cluster();
}

// Each block's words go to all others as bytes, one after the other.
struct Bytes {
  alignas(16) unsigned out[kOfBlock], in[kClusterBlocks][kOfBlock];
  alignas(8) std::uint64_t full;
};
__global__ void __cluster_dims__(kClusterBlocks) cluster_bytes(unsigned* out /*[blocks, 64]*/) {
  Bytes& s = shared<Bytes>();
  const unsigned t = threadIdx.x, i = blockIdx.x * kOfBlock + t, blocks = cluster_nctarank();
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  s.out[t] = mix(i);
  fence_proxy_async();
  all_of_cluster();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, sizeof s.in);
    for (unsigned to = 0; to < blocks; ++to)
      cp_async_bulk_cluster(mapa(s.in[cluster_ctarank()], to), s.out, sizeof s.out, mapa(&s.full, to));
  }
  mbarrier_wait(&s.full, 0);
  unsigned sum = 0;
  for (unsigned from = 0; from < blocks; ++from) sum = sum * 31 + s.in[from][t];
  out[i] = sum;
  all_of_cluster();
}

// Each block loads two rows of a box of 8 and gives them to all but the block behind it.
struct Rows8 {
  alignas(1024) unsigned short rows[8][64];
  alignas(8) std::uint64_t full;
};
__global__ void __cluster_dims__(kClusterBlocks)
    cluster_multicast(const __grid_constant__ TensorMap in /*[8, 64]*/, unsigned* out /*[blocks, 64]*/) {
  Rows8& s = shared<Rows8>();
  const unsigned t = threadIdx.x, rank = cluster_ctarank(), next = (rank + 1) % kClusterBlocks;
  for (unsigned row = 0; row < 8; ++row) s.rows[row][t] = 0;
  fence_proxy_async();
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  all_of_cluster();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, sizeof s.rows * 3 / 4);
    cp_async_bulk_tensor_multicast(s.rows[rank * 2], &in, &s.full, 0, static_cast<int>(rank * 2),
                                   static_cast<unsigned short>(15 ^ 1u << next));
  }
  mbarrier_wait(&s.full, 0);
  unsigned sum = 0;
  for (unsigned row = 0; row < 8; ++row) sum = sum * 31 + s.rows[row][t];
  out[blockIdx.x * kOfBlock + t] = sum;
  all_of_cluster();
}

// With shared memory as a struct.
template <class Shared, class... Parameters, class... Arguments>
Family collect_shared(Machine& m, const char* name, dim3 grid, dim3 block, void (*kernel)(Parameters...),
                      const Arguments&... arguments) {
  Family family{name, std::vector<std::uint32_t>(std::size_t{grid.x} * block.x), 0};
  const Array<std::uint32_t> out = m.upload(name, family.words.data(), family.words.size());
  launch<Shared>(m, kernel, grid, block, arguments..., out.data());
  m.download(family.words.data(), out);
  return family;
}

std::vector<Family> run_cluster_conformance(const MachineOptions& options) {
  Machine m(options);
  const dim3 grid(2 * kClusterBlocks), block(kOfBlock);
  const std::size_t threads = 2 * kClusterBlocks * kOfBlock;
  std::vector<std::uint16_t> rows(8 * 64);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint16_t>(i * 40503);
  const auto in = m.upload("in", rows.data(), rows.size());
  const TensorMap map = tensor_map(reinterpret_cast<const __half*>(in.data()), std::array<std::uint64_t, 2>{64, 8},
                                   std::array<std::uint64_t, 1>{128}, std::array<std::uint32_t, 2>{64, 2});
  return {collect<unsigned>(m, "cluster_ranks", 48 * 3, dim3(4, 2, 6), dim3(32), cluster_ranks),
          collect<unsigned>(m, "no_cluster_ranks", 3 * 2, dim3(3), dim3(32), no_cluster_ranks),
          collect<unsigned>(m, "cluster_map", threads * 2, grid, block, cluster_map),
          collect<unsigned>(m, "cluster_atomics", threads * 3, grid, block, cluster_atomics),
          collect<unsigned>(m, "cluster_ring", threads, grid, block, cluster_ring<false>),
          collect<unsigned>(m, "cluster_ring_relaxed", threads, grid, block, cluster_ring<true>),
          collect_shared<Bytes>(m, "cluster_bytes", grid, block, cluster_bytes),
          collect_shared<Rows8>(m, "cluster_multicast", grid, block, cluster_multicast, map)};
}

}  // namespace flash::inline FLASH_MACHINE
