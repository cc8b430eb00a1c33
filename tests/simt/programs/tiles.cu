// tiles.cu: tiles of several warps of cooperative groups: their barrier, which the rest of the block need not reach,
// sums, votes and values of one thread, tiles of tiles, tiles of two sizes at the same time. Each figure against the
// host's own. ./flash check tests/simt/programs/tiles.cu; nvcc -arch=native tiles.cu. With an argument: the halves of a
// tile do not wait for each other.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>

#include <cstdio>

namespace cg = cooperative_groups;

constexpr int kThreads = 256, kTile = 128;

struct Results {
  int sum, most, of_part, any, all, given, rank, number, count, part_rank, other;
};

__device__ int value(int i) {
  return i * 37 % 101 - 20;
}

__global__ void tiles(Results* out, bool broken) {
  __shared__ cg::block_tile_memory<kThreads> memory;
  __shared__ int s[kThreads];
  const cg::thread_block block = cg::this_thread_block(memory);
  const cg::thread_block_tile<kTile> tile = cg::tiled_partition<kTile>(block);
  const auto part = cg::tiled_partition<64>(tile);
  const auto warp = cg::tiled_partition<32>(part);
  const int t = static_cast<int>(block.thread_rank());
  Results& r = out[t];
  r.sum = cg::reduce(tile, value(t), cg::plus<int>());
  r.most = cg::reduce(tile, value(t), cg::greater<int>());
  r.of_part = cg::reduce(part, value(t), cg::plus<int>());
  r.any = tile.any(t == 7);
  r.all = part.all(t < 64);
  r.given = tile.shfl(value(t), 77);
  r.rank = static_cast<int>(tile.thread_rank());
  r.number = static_cast<int>(part.meta_group_rank());
  r.count = static_cast<int>(part.meta_group_size());
  r.part_rank = static_cast<int>(warp.meta_group_rank());
  // Only the second tile: the first one has gone on.
  r.other = -1;
  if (t >= kTile) {
    s[t] = value(t);
    if (!broken) tile.sync();
    r.other = s[t ^ 64];  //@ race
  }
}

// Tiles of 64 threads in the first half of the block, and of 128 in the second one, each at its own pace: the halves of
// a tile add what the other one has, three times in small tiles and five times in large ones. out [kThreads][2]: what a
// thread has then, and the sum over its tile.
__global__ void two_sizes(int (*out)[2], bool broken) {
  __shared__ cg::block_tile_memory<kThreads> memory;
  __shared__ int s[kThreads];
  const cg::thread_block block = cg::this_thread_block(memory);
  const auto small = cg::tiled_partition<64>(block);
  const auto large = cg::tiled_partition<kTile>(block);
  const int t = static_cast<int>(block.thread_rank());
  const bool first = t < kThreads / 2;
  int x = value(t);
  for (int round = 0; round < (first ? 3 : 5); ++round) {
    s[t] = x;
    if (!first)
      large.sync();
    else if (!broken)
      small.sync();
    x += s[t ^ (first ? 32 : 64)];  //@ race
    first ? small.sync() : large.sync();
  }
  out[t][0] = x;
  out[t][1] = first ? cg::reduce(small, x, cg::plus<int>()) : cg::reduce(large, x, cg::plus<int>());
}

int host_value(int i) {
  return i * 37 % 101 - 20;
}

int main(int argc, char**) {
  static Results got[kThreads];
  Results* out;
  int wrong = 0;
  cudaMalloc(&out, sizeof got);
  tiles<<<1, kThreads>>>(out, argc > 1);
  if (cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
#define EXPECT(what) \
  if (!(what)) std::printf("thread %d: %s\n", t, #what), ++wrong
  for (int t = 0; t < kThreads; ++t) {
    const Results& r = got[t];
    int sum = 0, most = -1000, of_part = 0;
    for (int i = t / kTile * kTile; i < (t / kTile + 1) * kTile; ++i) {
      sum += host_value(i), most = host_value(i) > most ? host_value(i) : most;
      if (i / 64 == t / 64) of_part += host_value(i);
    }
    EXPECT(r.sum == sum && r.most == most && r.of_part == of_part);
    EXPECT(!r.any == (t >= kTile) && !r.all == (t >= 64));
    EXPECT(r.given == host_value(t / kTile * kTile + 77) && r.rank == t % kTile);
    EXPECT(r.number == t / 64 % 2 && r.count == 2 && r.part_rank == t / 32 % 2);
    if (argc == 1) EXPECT(r.other == (t >= kTile ? host_value(t ^ 64) : -1));
  }

  static int handed[kThreads][2];
  int(*d_handed)[2];
  cudaMalloc(&d_handed, sizeof handed);
  two_sizes<<<1, kThreads>>>(d_handed, argc > 1);
  if (cudaMemcpy(handed, d_handed, sizeof handed, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  for (int t = 0; t < kThreads; ++t) {
    // After a round both have the sum of the two, and each further one doubles it.
    const bool first = t < kThreads / 2;
    const int size = first ? 64 : kTile, doubled = first ? 4 : 16;
    int sum = 0;
    for (int i = t / size * size; i < (t / size + 1) * size; ++i) sum += 2 * host_value(i) * doubled;
    EXPECT(handed[t][0] == (host_value(t) + host_value(t ^ size / 2)) * doubled);
    EXPECT(handed[t][1] == sum);
  }
  std::printf("tiles: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
