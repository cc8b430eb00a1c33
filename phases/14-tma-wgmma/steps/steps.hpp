// steps.hpp: the small kernels of the pages on TMA and wgmma as host code calls them, on each machine that the program
// holds. And the kernels of the staircase from phase 12 to 14.
// Use: small_on(Where::Sim).box({}, tensor, 128, 64, 0, seen); forward(*phase14::steps[6], problem, Where::Checked);
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/interface/where.hpp"

namespace flash::phase14 {

// What a launch of a small kernel did: its counters, and what the checked machine found.
struct Ran {
  KernelReport report;
  std::vector<Finding> findings;
};
using Numbers = std::vector<std::uint16_t>;
using Halves = std::vector<half>;
using Floats = std::vector<float>;

// The small kernels of boxes.cuh and products.cuh. Results are vectors of the right size.
using Second = Ran (*)(const MachineOptions&, const Floats& P, const Halves& V /*[64, 64]*/, Floats& O);
struct Small {
  // seen [16, 64]: the box at column x of row y of a tensor with so many columns, as it lies.
  Ran (*box)(const MachineOptions&, const Numbers& tensor, int columns, int x, int y, Numbers& seen) = nullptr;
  // sums [64]: of the columns of a tensor of 64 columns.
  Ran (*sums)(const MachineOptions&, const Numbers& tensor, unsigned flip, std::vector<unsigned>& sums) = nullptr;
  Ran (*descriptors)(const MachineOptions&, std::vector<unsigned>& bits /*[4, 2]*/) = nullptr;
  // S [128, 32]: what each thread holds of A Bᵀ, of the first 16 columns of A and B [64, 64], or of all.
  Ran (*one_step)(const MachineOptions&, const Halves& A, const Halves& B, Floats& S) = nullptr;
  Ran (*product)(const MachineOptions&, const Halves& A, const Halves& B, Floats& S) = nullptr;
  // O [128, 32] = P V, with P [128, 32] as threads hold it. On the GPU none where a word is left out.
  Second second = nullptr, second_k_major = nullptr, without_fence = nullptr, without_commit = nullptr,
         wait_too_short = nullptr;
};

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<Small, 3> small_by_machine{};
inline const Small& small_on(Where where) {
  return small_by_machine[static_cast<std::size_t>(where)];
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
