// barrier_life.hpp: a picture of who waits for whom at pairs of mbarriers, full and empty, in the order of a recorded
// run: when each stage is filled, there, read and given back. It shows an order; a recording knows no lengths of time.
// Use:  picture("stages", svg::barrier_life("title", recording, {{"stage 0", "K_ring.full[0]", "K_ring.empty[0]",
//           {"tile 3", "tile 1"}}, …}, {{"warpgroup 0", 0, 3}, …}));
#pragma once
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

namespace flash::svg {

struct StageOf {
  std::string label, full, empty;     // full, empty: mbarriers, as the recording calls them
  std::vector<std::string> fillings;  // what fills it, in order; what comes after them is not shown
};
struct RoleOf {
  std::string label;
  int first, last;  // warps
};

// Of block 0: which warps arrived at an mbarrier, in their order.
std::vector<int> arrived_at(const Recording& recording, const std::string& mbarrier);

// Of block 0: a row for each stage, orange while its bytes are on their way, green while they are there; and one for
// each role, grey while it waits, blue from its wait for `full` to its arrivals at `empty`, which are dots.
std::string barrier_life(const std::string& title, const Recording& recording, const std::vector<StageOf>& stages,
                         const std::vector<RoleOf>& roles);

}  // namespace flash::svg
