// steps.hpp: the staircase from phase 17 to 18: its kernels as phases of their own, which no list has.
// Compiled for one setting: bf16, D = 128, tiles of 128 × 128. None of them keeps anything for a backward pass.
// Use: forward(*phase18::steps[2], problem, Where::Checked);
#pragma once
#include <array>

#include "phases/18-diet/phase.hpp"

namespace flash::phase18 {

inline constexpr Features one_size = [] {
  Features f = features;
  f.meets = {Demand::Causal, Demand::Lse};
  f.types = {Type::BFloat16}, f.head_dims = {128}, f.blocks = {{128, 128}};
  return f;
}();

inline constinit Pass registers_pass{one_size, &phase17::phase};
inline constinit Phase registers_step{"18-diet/1-registers", "Q stays in registers", &registers_pass};

inline constinit Pass stages_pass{one_size, &registers_step};
inline constinit Phase stages_step{"18-diet/2-stages", "K has a third stage", &stages_pass};

inline constinit Pass maximum_pass{one_size, &stages_step};
inline constinit Phase maximum_step{"18-diet/3-maximum", "the maximum is one of three integers", &maximum_pass};

inline constinit Pass loops_pass{one_size, &maximum_step};
inline constinit Phase loops_step{"18-diet/4-loops", "masked tiles have a loop of their own", &loops_pass};

inline constinit Pass barriers_pass{one_size, &loops_step};
inline constinit Phase barriers_step{"18-diet/5-barriers", "each warpgroup has Q barriers of its own", &barriers_pass};

inline constinit Pass seam_pass{one_size, &barriers_step};
inline constinit Phase seam_step{"18-diet/6-seam", "S of the next Q tile is begun before the last PV of this one",
                                 &seam_pass};

inline constexpr std::array<const Phase*, 6> steps = {&registers_step, &stages_step,   &maximum_step,
                                                      &loops_step,     &barriers_step, &seam_step};

}  // namespace flash::phase18
