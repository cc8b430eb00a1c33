// causes.hpp: one mistake, one finding. `counter++` without an atomic is a read before a write, a write after a read
// and two writes, all at one line: three findings of the machine. A reduction's last warp that relies on lockstep has
// one for each pair of its lines. Here they become one finding, which says what else was seen and where.
// Use: for (const Finding& finding : by_cause(machine.findings())) … (sim/cuda/program.cpp).
#pragma once
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

// Findings of one launch. Those of one cause (Finding::cause) are joined, in the place of the first one: the text is
// that of the one whose threads are farthest apart, the count all of theirs.
std::vector<Finding> by_cause(const std::vector<Finding>& findings);

}  // namespace flash
