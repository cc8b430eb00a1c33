// cluster.hpp: kernels in clusters of blocks, which read, write and add to one another's shared memory.
// Use: run_cluster(options, case) on each machine; cluster_test.cpp says what must come out.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

struct ClusterResult {
  std::vector<unsigned> out;
  std::vector<Finding> findings;
  Ledger ledger;
};

constexpr unsigned kClusterThreads = 64;  // of a block

namespace on_sim {
// "ring": out[i] = in[i] of the next block of its cluster, in[i] = i; `blocks` of a cluster: 2, 4 or 8. "static ring":
// the same through a __shared__ array. "global ring": through global memory.
// "histogram": of each cluster, numbers below 64 * blocks, each block with its own 64 bins.
// "exchange": pairs send one another tiles by mbarriers. "spin": the same by flags.
// "send": the same as bytes, which complete on the other's mbarrier. "multicast": each block loads its part of boxes
// and gives it to all: out[t] = the sum over the boxes of what column t of the block's row has.
// "alone": the barrier and mapa in a launch without clusters. "exits": half of the threads exit before a barrier.
// "trap": a block of the first cluster traps, the other one waits for it.
// "ranks": rank, size, number and shape of 2 x 2 x 2 blocks.
ClusterResult run_cluster(const MachineOptions& options, const std::string& name, unsigned blocks, unsigned clusters);
// Launches that are refused.
void launch_ragged_clusters(const MachineOptions& options, unsigned blocks);
void launch_large_clusters(const MachineOptions& options);
}  // namespace on_sim
namespace on_checked {
ClusterResult run_cluster(const MachineOptions& options, const std::string& name, unsigned blocks, unsigned clusters);
void launch_ragged_clusters(const MachineOptions& options, unsigned blocks);
void launch_large_clusters(const MachineOptions& options);
}  // namespace on_checked

}  // namespace flash
