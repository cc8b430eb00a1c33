// steps.hpp: how TMA lays a tile out and where a product's elements are, as the page of phase 14 asks the simulator:
// elements are given as their number, 64 · row + column. And the kernels of the staircase from phase 12 to 14.
// Use: const Laid laid = ask_on(Where::Sim)(); const Run run = forward(*phase14::steps[6], problem, Where::Checked);
#pragma once
#include <array>

#include "phases/14-tma-wgmma/phase.hpp"
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

// The steps from phase 12 to 14, each as a phase of its own that no list names; compiled for one setting: bf16, D 128,
// tiles of 128 x 64.
inline constexpr Features one_size = [] {
  Features one = features;
  one.types = {Type::BFloat16}, one.head_dims = {128}, one.blocks = {{128, 64}};
  return one;
}();
inline constinit Pass softmax_pass{one_size, &phase13::phase}, rows_pass{one_size, &phase13::phase},
    finish_pass{one_size, &phase13::phase}, order_pass{one_size, &phase13::phase},
    ahead_pass{one_size, &phase13::phase}, panels_pass{one_size, &phase13::phase}, tma_pass{one_size, &phase13::phase},
    scores_pass{one_size, &phase13::phase};
inline constexpr std::array<Phase, 8> step_phases{{
    {"14-tma-wgmma/1-softmax", "online softmax in the words of the Hopper phases", &softmax_pass},
    {"14-tma-wgmma/2-rows", "which keys a row sees is worked out once", &rows_pass},
    {"14-tma-wgmma/3-finish", "one division for a row; O leaves two elements at a time", &finish_pass},
    {"14-tma-wgmma/4-order", "from the last tile to the first, the longest Q tiles first", &order_pass},
    {"14-tma-wgmma/5-ahead", "two tiles are on their way before the first is multiplied", &ahead_pass},
    {"14-tma-wgmma/6-panels", "tiles are panels of 64 columns", &panels_pass},
    {"14-tma-wgmma/7-tma", "one thread copies whole tiles by TMA", &tma_pass},
    {"14-tma-wgmma/8-scores", "S by wgmma", &scores_pass},
}};
inline constexpr std::array<const Phase*, 8> steps = {&step_phases[0], &step_phases[1], &step_phases[2],
                                                      &step_phases[3], &step_phases[4], &step_phases[5],
                                                      &step_phases[6], &step_phases[7]};

}  // namespace flash::phase14
