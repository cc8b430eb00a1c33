// automatic.hpp: which phase a call gets that names none: the one that was measured fastest for such a problem.
// The figures are those of docs/results, which the build turns into a source file (measured.hpp); no phase is known
// here by name. What no phase can do, the definition does on the CPU (phases/definition).
// Use: const Choice chosen = choose_phase(problem, where);  chosen.phase, chosen.why()
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "phases/interface/phase.hpp"

namespace flash {

// One measurement: Sq = Sk = N, in so many heads, B·H.
struct Measured {
  std::string_view phase;  // its name, or its number
  Type type;
  bool causal;
  std::int64_t D, N, heads;
  double tflops;
  Direction direction = Direction::Forward;
  BackwardMode mode = BackwardMode::Deterministic;  // of a backward pass
};

struct Choice {
  const Phase* phase = nullptr;  // never null
  Measured figure{};             // what spoke for it; its phase is empty where no figure did
  bool only = false;             // no other phase can do it
  std::string missing = {};      // what no phase has, in words; then it is the definition

  // "auto: 287 TFLOP/s at B·H 256, N 2048, D 64, float16 on NVIDIA H200", "auto: no phase has all of …"
  std::string why() const;
};

// Of this GPU, phase by phase.
extern const char* const measured_gpu;
const std::vector<Measured>& measured_figures();

// Of the kernel phases that can do it (direction, type, demands, D, blocks, and the GPU where that is the machine; the
// simulator runs them all) the one with the highest figure. A phase is judged by the figure nearest to the problem.
// What counts first comes first:
//   0. the pass: a figure of the other direction says nothing. Of a backward pass then the mode;
//   1. the size of the type: 16-bit types are as fast as each other;
//   2. with or without a mask, as here;
//   3. D, as a ratio;
//   4. the size: tiles of 128 rows of Q in all heads, B·H·ceil(Sq/128), which say how much of a GPU has work, and the
//      keys Sk, which say how long that work is: the product of both ratios. Of two as near the longer;
//   5. the very type.
// A figure of more Q tiles than the problem has counts in proportion: with fewer tiles less of the GPU has work, and a
// phase that was measured with many alone must not win by that.
// A phase that meets by a variant of its kernels what is not asked (from 25 on) is taken only if no other can do it.
// Of those within 2 % of the highest, which is noise, the newest is taken; where nothing was measured, the newest of
// all. If none can do it, it is the definition on the machine that has it, the simulator's; elsewhere, or where the
// definition cannot either, the answer is a phase whose validate() or require() says why.
Choice choose_phase(const AnyProblem& p, Where where, const std::vector<Measured>& figures = measured_figures());
// The same of the phases that `runs` says yes to, as for a GPU that is not here.
Choice choose_phase(const AnyProblem& p, const std::function<bool(const Features&)>& runs,
                    const std::vector<Measured>& figures = measured_figures());

}  // namespace flash
