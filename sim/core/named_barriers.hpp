// named_barriers.hpp: the 16 barriers of a block that bar.sync and bar.arrive name, of as many threads as they say,
// those of tiles of several warps, and the registers that setmaxnreg gives and takes. PTX ISA, "bar", "setmaxnreg".
// Use: Worker calls them when all lanes of a warp (all warps of a warpgroup) have come; sim/core/warpgroup_ops.cpp.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "sim/core/simt.hpp"

namespace flash::simt {

struct NamedBarrier {
  unsigned threads = 0, arrived = 0;  // threads: what the first one said; 0: nobody has come since it completed
  unsigned first_thread = 0;          // of those that have come
  Site site;                          // where it did
  std::vector<unsigned> waiting;      // warps
};
// Tiles of 64, 128, 256 and 512 threads that a block is divided into (sim/cuda/include/cooperative_groups.h) have
// barriers of their own, behind the 16: the tile t of N threads says kTileBarrier + t, and N.
constexpr int kNamedBarriers = 16, kTileBarrier = 1 << 20;
using NamedBarriers = std::array<NamedBarrier, 48>;
inline bool is_of_tile(const NamedBarrierOperands& said) {
  return said.barrier >= kTileBarrier && said.barrier < kTileBarrier + 1024 / said.threads;
}
inline std::size_t place_of(const NamedBarrierOperands& said) {
  if (!is_of_tile(said)) return static_cast<std::size_t>(said.barrier) % kNamedBarriers;
  return static_cast<std::size_t>(48 - 2048 / said.threads + said.barrier - kTileBarrier);
}
// "bar.sync 1, 64"
inline std::string described(const NamedBarrierOperands& said, const char* instruction) {
  const std::string threads = std::to_string(said.threads);
  if (!is_of_tile(said)) return instruction + (" " + std::to_string(said.barrier)) + ", " + threads;
  return "sync of tile " + std::to_string(said.barrier - kTileBarrier) + " of " + threads + " threads";
}

// How many registers a thread of each warpgroup may have. What the kernel needs is the compiler's business.
struct RegisterBudget {
  static constexpr unsigned kOfSm = 65536, kMost = 255, kStep = 8;
  unsigned at_launch = 0;            // 0: the kernel has no __launch_bounds__(threads, blocks)
  std::vector<unsigned> of, wanted;  // wanted: by a warpgroup that waits in setmaxnreg.inc

  void begin_block(std::size_t warpgroups) {
    at_launch = 0;
    of.assign(warpgroups, 0), wanted.assign(warpgroups, 0);
  }
  // As __launch_bounds__ lets the compiler give them out.
  void bound(unsigned threads, unsigned blocks) {
    if (blocks == 0) return;
    at_launch = std::min(kOfSm / (threads * blocks), kMost) / kStep * kStep;
    for (unsigned& registers : of) registers = at_launch;
  }
  unsigned free() const {  // for each thread of one warpgroup
    unsigned taken = 0;
    for (const unsigned registers : of) taken += registers;
    return at_launch * static_cast<unsigned>(of.size()) - taken;
  }
};

}  // namespace flash::simt
