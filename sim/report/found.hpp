// found.hpp: what a launch on the checked simulator throws that has findings: a line, and the findings with their text.
// Whoever catches flash::Error sees the line; programs that want all of it, libflashphases, catch this.
// Use: catch (const Found& e) { e.findings[0].text }
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sim/error.hpp"
#include "sim/machine_options.hpp"

namespace flash {

struct Found : Error {
  Found(const std::string& line, std::vector<Finding> all) : Error(line), findings(std::move(all)) {}
  std::vector<Finding> findings;  // of the launch, in the order in which they are told
};

}  // namespace flash
