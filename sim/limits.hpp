// limits.hpp: what a GPU's launch accepts, so that a kernel that runs here also starts there.
// Used by every machine before a launch; a violation is refused with the number, the limit and a remedy.
// Numbers: CUDA Programming Guide, "Technical Specifications per Compute Capability".
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "sim/error.hpp"
#include "sim/machine_options.hpp"

namespace flash {

// Shared memory that one block may ask for (opt-in), in bytes.
constexpr std::size_t shared_memory_limit(Profile profile) {
  return profile == Profile::sm_80 ? 163 * 1024 : 227 * 1024;
}

// The same without cudaFuncSetAttribute.
constexpr std::size_t kSharedWithoutAsking = 48 * 1024;

// What the chip has: multiprocessors of an H200 or an A100, and what one of them holds at a time.
constexpr int multiprocessors(Profile profile) {
  return profile == Profile::sm_80 ? 108 : 132;
}
constexpr int kThreadsOfMultiprocessor = 2048, kBlocksOfMultiprocessor = 32;
constexpr std::size_t kReservedShared = 1024;  // of each block

// Blocks of so many threads and so much shared memory that a multiprocessor has room for. Registers are not known here.
constexpr int blocks_of_multiprocessor(Profile profile, int threads, std::size_t shared_bytes) {
  if (threads < 1 || threads > 1024) return 0;
  const int by_threads = kThreadsOfMultiprocessor / ((threads + 31) / 32 * 32);
  const auto by_shared =
      static_cast<int>((shared_memory_limit(profile) + kReservedShared) / (shared_bytes + kReservedShared));
  return std::min({by_threads, by_shared, kBlocksOfMultiprocessor});
}

// Blocks of a cooperative launch: all of them must fit at a time. Each is a thread of the host here.
constexpr std::size_t cooperative_blocks(Profile profile, int threads, std::size_t shared_bytes) {
  return static_cast<std::size_t>(multiprocessors(profile) * blocks_of_multiprocessor(profile, threads, shared_bytes));
}

// A grid or block with an axis of 0 is refused, as CUDA refuses it (cudaErrorInvalidConfiguration).
inline void check_launch(Profile profile, const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                         std::size_t shared_bytes) {
  constexpr const char* kAxis[] = {"x", "y", "z"};
  constexpr unsigned kGridLimit[] = {2147483647u, 65535u, 65535u}, kBlockLimit[] = {1024u, 1024u, 64u};
  for (int a = 0; a < 3; ++a) {
    if (grid[a] == 0 || grid[a] > kGridLimit[a])
      refuse(std::string("grid.") + kAxis[a], grid[a], "1 to " + std::to_string(kGridLimit[a]),
             grid[a] == 0 ? "skip the launch when there is no work" : "put the long axis on grid.x");
    if (block[a] == 0 || block[a] > kBlockLimit[a])
      refuse(std::string("block.") + kAxis[a], block[a], "1 to " + std::to_string(kBlockLimit[a]),
             "use a smaller block and more blocks");
  }
  const std::size_t threads = std::size_t{block[0]} * block[1] * block[2];
  if (threads > 1024) refuse("threads per block", threads, "at most 1024", "use a smaller block and more blocks");
  if (shared_bytes > shared_memory_limit(profile))
    refuse("shared memory per block", std::to_string(shared_bytes) + " bytes",
           "at most " + std::to_string(shared_memory_limit(profile)) + " bytes on " +
               (profile == Profile::sm_80 ? "sm_80" : "sm_90"),
           "use smaller tiles");
}

// Blocks of a cluster that every GPU with clusters takes.
constexpr unsigned kMostClusterBlocks = 8;

// A grid in clusters: whole ones, on each axis.
inline void check_cluster(Profile profile, const std::array<unsigned, 3>& grid,
                          const std::array<unsigned, 3>& cluster) {
  constexpr const char* kAxis[] = {"x", "y", "z"};
  const std::uint64_t blocks = std::uint64_t{cluster[0]} * cluster[1] * cluster[2];
  if (blocks == 1) return;
  if (blocks == 0 || cluster[0] > 8 || cluster[1] > 8 || blocks > kMostClusterBlocks)
    refuse("blocks in a cluster",
           std::to_string(cluster[0]) + " x " + std::to_string(cluster[1]) + " x " + std::to_string(cluster[2]),
           "1 to " + std::to_string(kMostClusterBlocks), "use smaller clusters");
  if (profile == Profile::sm_80)
    refuse("blocks in a cluster", blocks, "1 on sm_80", "use the profile sm_90, which has clusters");
  for (int a = 0; a < 3; ++a)
    if (grid[a] % cluster[a] != 0)
      refuse(std::string("grid.") + kAxis[a], grid[a],
             "a multiple of the cluster's " + std::to_string(cluster[a]) + " blocks",
             "add blocks that have nothing to do, or use smaller clusters");
}

// How many multiprocessors a persistent grid finds on the simulator: two, so that its blocks draw work in turn.
inline constexpr int simulated_multiprocessors = 2;

}  // namespace flash
