// steps.hpp: what blocks draw, as the page of phase 17 asks it of the simulator; and how many heads a section has.
// Tiles are given as their number, head · q_tiles + q_tile.
// Use: const Drawn drawn = asked_on(Where::Sim).draw(6, 8, 3, 5);
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "phases/interface/where.hpp"

namespace flash::phase17 {

struct Drawn {
  std::vector<int> order;       // tiles as the schedule lists them
  std::vector<unsigned> times;  // by tile: how often it was drawn
  unsigned counter;             // after the launch
};
struct Asked {
  Drawn (*draw)(unsigned heads, unsigned q_tiles, unsigned section, unsigned blocks);
  unsigned (*section_of)(std::int64_t heads, std::int64_t Sk, int D);
};

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<Asked, 3> asked_by_machine{};
inline const Asked& asked_on(Where where) {
  return asked_by_machine[static_cast<std::size_t>(where)];
}

}  // namespace flash::phase17
