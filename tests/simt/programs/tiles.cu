// tiles.cu: tiles of several warps of cooperative groups: their barrier, which the rest of the block need not reach,
// sums, votes and values of one thread, tiles of tiles. Each figure against the host's own.
// ./flash check tests/simt/programs/tiles.cu; nvcc -arch=native tiles.cu. With an argument: the halves of a tile do not
// wait for each other.
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
  std::printf("tiles: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
