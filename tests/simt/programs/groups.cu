// groups.cu: cooperative groups beside barriers: scans, reductions of coalesced threads, parts of parts, what a part is
// called, values of more than eight bytes, one thread for all. Each figure against the host's own loop.
// ./flash check tests/simt/programs/groups.cu; nvcc -arch=native groups.cu. With an argument: a scan by hand forgets to
// wait for its warp.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_runtime.h>

#include <cstdio>

namespace cg = cooperative_groups;

constexpr int kThreads = 64;

struct Triple {
  int index;
  double weight;  // 16 bytes in all
};

struct Results {
  int inclusive, exclusive, most, smallest_before, of_coalesced, scan_of_coalesced, two_below, votes;
  int part_rank, part_count, inner_rank, inner_count, of_dynamic, chosen;
  Triple given;
};

__device__ int value(int i) {
  return i * 37 % 101 - 20;
}

__global__ void groups(Results* out) {
  const cg::thread_block block = cg::this_thread_block();
  const int t = static_cast<int>(block.thread_rank());
  const auto tile = cg::tiled_partition<16>(block);
  const auto inner = cg::tiled_partition<4>(tile);
  Results& r = out[t];
  r.inclusive = cg::inclusive_scan(tile, value(t));
  r.exclusive = cg::exclusive_scan(tile, value(t));
  r.most = cg::inclusive_scan(tile, value(t), cg::greater<int>());
  r.smallest_before = cg::exclusive_scan(inner, value(t), cg::less<int>());
  r.part_rank = tile.meta_group_rank(), r.part_count = tile.meta_group_size();
  r.inner_rank = inner.meta_group_rank(), r.inner_count = inner.meta_group_size();
  const Triple mine{t, t / 8.0};
  r.given = tile.shfl(mine, 5);
  r.of_coalesced = r.scan_of_coalesced = r.two_below = r.votes = r.of_dynamic = -1;
  if (t % 3 != 0) {
    const cg::coalesced_group active = cg::coalesced_threads();
    r.of_coalesced = cg::reduce(active, value(t), cg::plus<int>());
    r.scan_of_coalesced = cg::inclusive_scan(active, value(t));
    r.two_below = active.shfl_up(t, 2);
    r.votes = static_cast<int>(active.ballot(t % 2));
    r.of_dynamic = static_cast<int>(cg::tiled_partition(active, 4).thread_rank());
  }
  r.chosen = cg::invoke_one_broadcast(tile, [](int x) { return x + 1; }, t);
}

// The same sum by hand, over one warp's shared memory.
__global__ void by_hand(int* sums, bool broken) {
  __shared__ int s[32];
  const int t = threadIdx.x;
  s[t] = value(t);
  __syncwarp();
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = t >= distance ? s[t - distance] : 0;  //@ race
    if (!broken) __syncwarp();
    s[t] += before;  //@ race
    __syncwarp();
  }
  sums[t] = s[t];
}

int host_value(int i) {
  return i * 37 % 101 - 20;
}

int main(int argc, char**) {
  static Results got[kThreads];
  Results* out;
  int wrong = 0, *sums, hand[32];
  cudaMalloc(&out, sizeof got);
  cudaMalloc(&sums, sizeof hand);
  groups<<<1, kThreads>>>(out);
  by_hand<<<1, 32>>>(sums, argc > 1);
  if (cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  if (cudaMemcpy(hand, sums, sizeof hand, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
#define EXPECT(what) \
  if (!(what)) std::printf("thread %d: %s\n", t, #what), ++wrong
  for (int t = 0; t < kThreads; ++t) {
    const Results& r = got[t];
    int sum = 0, most = -1000, least = t % 4 == 0 ? 0 : 2147483647;  // before the first there is int()
    for (int i = t / 16 * 16; i <= t; ++i) sum += host_value(i), most = host_value(i) > most ? host_value(i) : most;
    for (int i = t / 4 * 4; i < t; ++i) least = host_value(i) < least ? host_value(i) : least;
    EXPECT(r.inclusive == sum && r.exclusive == sum - host_value(t) && r.most == most && r.smallest_before == least);
    EXPECT(r.part_rank == t / 16 && r.part_count == 4 && r.inner_rank == t % 16 / 4 && r.inner_count == 4);
    EXPECT(r.given.index == t / 16 * 16 + 5 && r.given.weight == r.given.index / 8.0);
    EXPECT(r.chosen == t / 16 * 16 + 1);
    if (t % 3 == 0) continue;
    int all = 0, up_to = 0, votes = 0, rank = 0, below[2] = {t, t};
    for (int i = t / 32 * 32, n = 0; i < t / 32 * 32 + 32; ++i) {
      if (i % 3 == 0) continue;
      all += host_value(i), votes |= (i % 2) << n, ++n;
      if (i <= t) up_to += host_value(i);
      if (i < t) ++rank, below[1] = below[0], below[0] = i;
    }
    EXPECT(r.of_coalesced == all && r.scan_of_coalesced == up_to && r.votes == votes);
    EXPECT(r.two_below == (rank < 2 ? t : below[1]) && r.of_dynamic == rank % 4);
  }
  if (argc == 1)
    for (int t = 0, sum = 0; t < 32; ++t) EXPECT(hand[t] == (sum += host_value(t)));
  std::printf("groups: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
