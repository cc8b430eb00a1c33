// cluster_test.cpp: clusters of 2, 4 and 8 blocks calculate what plain loops do, whatever the order of threads and
// blocks, when copies complete, and how many clusters run at a time; what no GPU would launch is refused.
// Run: ctest -L simt, or simt_cluster_test
#include "tests/simt/cluster.hpp"

#include <string>

#include "sim/error.hpp"
#include "tests/simt/machines.hpp"

namespace {

using flash::ClusterResult, flash::Completion, flash::kClusterThreads, flash::MachineOptions, flash::Order;

std::vector<MachineOptions> schedules() {
  return {{.threads = 1},
          {.order = Order::reverse, .threads = 2},
          {.order = Order::random, .seed = 3, .threads = 1},
          {.order = Order::random, .seed = 5, .completion = Completion::random, .threads = 4},
          {.order = Order::forward, .completion = Completion::eager, .threads = 3}};
}

template <class Machine>
ClusterResult run(const MachineOptions& options, const std::string& name, unsigned blocks, unsigned clusters) {
  if constexpr (Machine::checks)
    return flash::on_checked::run_cluster(options, name, blocks, clusters);
  else
    return flash::on_sim::run_cluster(options, name, blocks, clusters);
}

constexpr unsigned kClusters = 3;

// What block b of clusters of `blocks` leaves in out[t].
unsigned expected(const std::string& name, unsigned blocks, unsigned b, unsigned t) {
  const unsigned first = b / blocks * blocks, rank = b - first;
  const unsigned next = first + (rank + 1) % blocks, before = first + (rank + blocks - 1) % blocks;
  if (name == "ring" || name == "static ring" || name == "global ring" || name == "exits")
    return next * kClusterThreads + t;
  if (name == "multicast") return (3 * (rank * 64 + t) + (0 + 1 + 2) * 8 * 64);
  if (name == "exchange" || name == "send") {
    const unsigned from = (b ^ 1) * kClusterThreads + kClusterThreads - 1 - t;
    return 3 * from + 0 + 1 + 2;
  }
  if (name == "spin") {  // the sum over the blocks before it, its own for rank 0: all
    unsigned sum = 0;
    for (unsigned r = 0; r <= before - first; ++r) sum += (first + r) * kClusterThreads + t;
    return sum;
  }
  unsigned count = 0;  // histogram
  for (unsigned i = 0; i < blocks * kClusterThreads; ++i)
    for (unsigned j = 1; j <= 8; ++j)
      count += (first * kClusterThreads + i) * j % (blocks * kClusterThreads) == rank * kClusterThreads + t;
  return count;
}

}  // namespace

TEST_CASE_TEMPLATE("blocks of a cluster reach one another's shared memory, whatever the schedule", Machine, MACHINES) {
  for (const std::string name :
       {"ring", "static ring", "global ring", "histogram", "exchange", "send", "multicast", "spin", "exits"})
    for (const unsigned blocks : {2u, 4u, 8u}) {
      std::vector<unsigned> right;
      for (unsigned b = 0; b < blocks * kClusters; ++b)
        for (unsigned t = 0; t < kClusterThreads; ++t) right.push_back(expected(name, blocks, b, t));
      for (const MachineOptions& options : schedules()) {
        CAPTURE(name);
        CAPTURE(blocks);
        CAPTURE(options.threads);
        CAPTURE(static_cast<int>(options.order));
        CHECK(run<Machine>(options, name, blocks, kClusters).out == right);
      }
    }
}

TEST_CASE_TEMPLATE("ranks and shapes of clusters of three dimensions", Machine, MACHINES) {
  const std::vector<unsigned> out = run<Machine>({}, "ranks", 2, 1).out;
  for (unsigned z = 0; z < 6; ++z)
    for (unsigned y = 0; y < 2; ++y)
      for (unsigned x = 0; x < 4; ++x)
        CHECK(out[x + 4 * (y + 2 * z)] == 100 * (x / 2 + 2 * (z / 2)) + x % 2 + 2 * (y % 2) + 4 * (z % 2));
}

TEST_CASE_TEMPLATE("without a cluster a block is one of its own", Machine, MACHINES) {
  const std::vector<unsigned> out = run<Machine>({}, "alone", 2, 1).out;
  for (unsigned i = 0; i < out.size(); ++i)
    CHECK(out[i] == (i / kClusterThreads + 1) * kClusterThreads - 1 - i % kClusterThreads);
}

TEST_CASE_TEMPLATE("a block that stops ends its cluster and says once why, other clusters run", Machine, MACHINES) {
  for (MachineOptions options : schedules()) {
    options.keep_going = true;
    const ClusterResult result = run<Machine>(options, "trap", 2, kClusters);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].kind == "trap");
    CHECK(result.out[5] == 5);
    CHECK(result.out[5 * kClusterThreads + 5] == 5 * kClusterThreads + 5);
  }
}

TEST_CASE_TEMPLATE("launches that no GPU takes are refused", Machine, MACHINES) {
  const auto ragged =
      Machine::checks ? flash::on_checked::launch_ragged_clusters : flash::on_sim::launch_ragged_clusters;
  const auto large = Machine::checks ? flash::on_checked::launch_large_clusters : flash::on_sim::launch_large_clusters;
  CHECK_NOTHROW(ragged({}, 4));
  CHECK_THROWS_WITH_AS(ragged({}, 5), doctest::Contains("grid.x is 5; expected a multiple of the cluster's 2 blocks"),
                       flash::Error);
  CHECK_THROWS_WITH_AS(ragged({.profile = flash::Profile::sm_80}, 4), doctest::Contains("1 on sm_80"), flash::Error);
  CHECK_THROWS_WITH_AS(large({}), doctest::Contains("blocks in a cluster is 4 x 4 x 1; expected 1 to 8"), flash::Error);
}

#ifndef FLASH_NO_CHECKED_KERNELS
TEST_CASE("bytes of other blocks' shared memory are counted apart") {
  for (const MachineOptions& options : schedules()) {
    const flash::Ledger read = run<Checked>(options, "ring", 4, kClusters).ledger;
    CHECK(read.cluster_read_bytes == kClusters * 4 * kClusterThreads * 4);
    CHECK(read.cluster_written_bytes == 0);
    CHECK(read.shared_read_requests == 0);
    CHECK(read.shared_write_requests == kClusters * 4 * 2);
    const flash::Ledger written = run<Checked>(options, "static ring", 4, kClusters).ledger;
    CHECK(written.cluster_read_bytes == 0);
    CHECK(written.cluster_written_bytes == kClusters * 4 * kClusterThreads * 4);
    // Three boxes of 1024 bytes, which each cluster reads once.
    CHECK(run<Checked>(options, "multicast", 4, kClusters).ledger.arrays[0].read_bytes == kClusters * 3 * 1024);
  }
}
#endif
