// steps.hpp: what each lane of a warp holds of mma's operands, as the page of phase 10 asks it of the simulator.
// Elements are given as their number, 16 · row + column.
// Use: const Held held = ask_on(Where::Sim)();
#pragma once
#include <array>

#include "phases/interface/where.hpp"

namespace flash::phase10 {

// Per lane. Of B one that lies in memory as it is multiplied (V), and one that lies transposed (K).
struct Held {
  std::array<std::array<int, 8>, 32> A;
  std::array<std::array<int, 4>, 32> B, B_transposed, C;
};

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<Held (*)(), 3> ask_by_machine{};
inline auto ask_on(Where where) {
  return ask_by_machine[static_cast<std::size_t>(where)];
}

}  // namespace flash::phase10
