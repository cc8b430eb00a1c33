// steps.hpp: the kernels of the staircase as host code calls them, on each machine that the program holds.
// They are small programs beside the phase: float32, one head, D = 32. The phase itself is attention.cuh.
// Use: const Ran ran = steps_on(Where::Checked).scale({}, 2.0f, x, y);
#pragma once
#include <array>
#include <string>
#include <vector>

#include "phases/interface/where.hpp"

namespace flash::phase05 {

using Floats = std::vector<float>;
inline constexpr int step_D = 32, step_Br = 64, step_Bc = 32;  // of the kernels 3 to 9

// What a launch did: its grid and counters, what the checked machine found, how long the GPU took where it was asked.
struct Ran {
  KernelReport report;
  std::vector<Finding> findings;
  Timing timing;
};

// q, k, v and o are [N, 32].
using AttentionStep = Ran (*)(const MachineOptions&, const Floats& q, const Floats& k, const Floats& v, Floats& o);

struct Steps {
  Ran (*scale)(const MachineOptions&, float a, const Floats& x, Floats& y) = nullptr;
  Ran (*scale_apart)(const MachineOptions&, float a, const Floats& x, Floats& y) = nullptr;
  // Of an n × n matrix.
  Ran (*transpose_directly)(const MachineOptions&, const Floats& in, Floats& out, int n) = nullptr;
  Ran (*transpose)(const MachineOptions&, const Floats& in, Floats& out, int n) = nullptr;
  Ran (*transpose_without_barrier)(const MachineOptions&, const Floats& in, Floats& out, int n) = nullptr;
  AttentionStep naive = nullptr, tiled = nullptr, padded = nullptr, reuse = nullptr, float4s = nullptr, exp2s = nullptr,
                unrolled = nullptr;
};

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<Steps, 3> steps_by_machine{};
inline const Steps& steps_on(Where where) {
  return steps_by_machine[static_cast<std::size_t>(where)];
}

struct NamedStep {
  const char* name;  // the file's
  AttentionStep Steps::*run;
};
inline constexpr NamedStep attention_steps[] = {
    {"3-naive", &Steps::naive},       {"4-tiled", &Steps::tiled},    {"5-padded", &Steps::padded},
    {"6-reuse", &Steps::reuse},       {"7-float4", &Steps::float4s}, {"8-exp2", &Steps::exp2s},
    {"9-unrolled", &Steps::unrolled},
};

}  // namespace flash::phase05
