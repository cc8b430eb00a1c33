// machines.hpp: the simulator's machines as tests name them: Sim; Checked where it is built; MACHINES, a test for each.
// And where the lines are that findings must name: those of a kernel file that end in "//@ mark".
// Use: TEST_CASE_TEMPLATE("…", Machine, MACHINES) { … line_of("simt/faults.cu", "loop") … }
#pragma once
#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "sim/machine.hpp"
#include "tests/folder.hpp"

using Sim = flash::on_sim::Machine;
#ifdef FLASH_NO_CHECKED_KERNELS
#define MACHINES Sim
#else
using Checked = flash::on_checked::Machine;
#define MACHINES Sim, Checked
#endif

namespace flash::test {

// "faults.cu:12" for each line of tests/simt/faults.cu with the mark; there is one at least.
inline std::vector<std::string> lines_of(const std::string& file, const std::string& mark) {
  std::vector<std::string> places;
  std::istringstream source(get(FLASH_SOURCE_DIR "/tests/" + file));
  int number = 0;
  for (std::string line; std::getline(source, line);)
    if (++number; line.ends_with("//@ " + mark))
      places.push_back(file.substr(file.rfind('/') + 1) + ":" + std::to_string(number));
  REQUIRE(!places.empty());
  return places;
}
inline std::string line_of(const std::string& file, const std::string& mark) {
  return lines_of(file, mark)[0];
}

}  // namespace flash::test
