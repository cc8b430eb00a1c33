// report.hpp: a launch's counters as a table in Nsight Compute's words, and as JSON.
// Ratios are derived here; the ledger holds integers only. What the words mean: docs/simulator.md.
// Use: print_report(std::cout, m.reports().back()); out << to_json(m.reports());
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

void print_report(std::ostream& out, const KernelReport& report);
std::string to_json(const std::vector<KernelReport>& reports);

}  // namespace flash
