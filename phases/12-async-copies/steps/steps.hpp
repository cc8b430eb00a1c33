// steps.hpp: the kernel of stages.cuh as the page of phase 12 calls it, on each machine that the program holds: what it
// computed, what it cost, and who did what when.
// Use: const Sum sum = stages_on(Where::Checked).two({.trace = "memory"}, x);
#pragma once
#include <array>
#include <vector>

#include "phases/interface/where.hpp"

namespace flash::phase12 {

struct Sum {
  std::vector<float> y;
  Ledger ledger;
  std::vector<TraceEvent> trace;
};
// x: tiles of 512 numbers.
using AddTiles = Sum (*)(const MachineOptions&, const std::vector<float>& x);
struct SumWithStages {
  AddTiles two = nullptr, three = nullptr;
};

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<SumWithStages, 3> stages_by_machine{};
inline const SumWithStages& stages_on(Where where) {
  return stages_by_machine[static_cast<std::size_t>(where)];
}

}  // namespace flash::phase12
