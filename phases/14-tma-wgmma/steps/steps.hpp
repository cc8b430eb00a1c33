// steps.hpp: how TMA lays a tile out and where a product's elements are, as the page of phase 14 asks the simulator.
// Elements are given as their number, 64 · row + column.
// Use: const Laid laid = ask_on(Where::Sim)();
#pragma once
#include <array>

#include "phases/interface/where.hpp"

namespace flash::phase14 {

// The tile's elements in the order in which they lie in shared memory, and the 32 of S that each of 128 threads holds.
struct Laid {
  std::array<std::array<int, 64>, 64> tile;
  std::array<std::array<int, 32>, 128> S;
};

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<Laid (*)(), 3> ask_by_machine{};
inline auto ask_on(Where where) {
  return ask_by_machine[static_cast<std::size_t>(where)];
}

}  // namespace flash::phase14
