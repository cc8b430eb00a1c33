// automatic.hpp: which phase a call gets that names none: the one that was measured fastest for such a problem.
// The figures are those of docs/results, which the build turns into a source file (measured.hpp); no phase is known
// here by name.
// Use: const Choice chosen = choose_phase(p.sizes(), Type::Float16, false, where);  chosen.phase, chosen.why()
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "phases/interface/phase.hpp"

namespace flash {

// One measurement, Sq = Sk = N.
struct Measured {
  std::string_view phase;
  Type type;
  bool causal;
  std::int64_t D, N;
  double tflops;
};

struct Choice {
  const Phase* phase = nullptr;  // never null
  Measured figure{};             // what spoke for it; its phase is empty where no figure did
  bool only = false;             // no other phase can do it

  // "auto: 287 TFLOP/s at N 2048, D 64, float16 on NVIDIA H200"
  std::string why() const;
};

// Of this GPU, phase by phase.
extern const char* const measured_gpu;
const std::vector<Measured>& measured_figures();

// Of the kernel phases that can do it (gradients, type, mask, LSE, D, blocks, and the GPU where that is the machine;
// the simulator runs them all) the one with the highest figure. A phase is judged by the figure nearest to the problem:
// of this type, else of one of this size, else of any; then with or without a mask as here; then by D, then by
// N = sqrt(Sq·Sk), as ratios, the larger if two are as near. B and H do not count. Of those within 2 % of the highest,
// which is noise, the newest is taken; where nothing was measured, the newest of all. If none can do it, the answer
// is one whose validate() or require() says why.
// `by_tma`: may the phase be one that copies by TMA (tma_obstacle in problem.hpp)?
Choice choose_phase(const Sizes& sizes, Type type, bool gradients, Where where, bool by_tma = true,
                    const std::vector<Measured>& figures = measured_figures());

}  // namespace flash
