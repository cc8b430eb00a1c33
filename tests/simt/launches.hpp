// launches.hpp: what launches.cu does on each machine: launches in all forms that CUDA knows, and refused ones.
// No CUDA word enters here. Use: simt_launches_test
#pragma once
#include <string>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

// One launch: how it is written, what its threads should have added up, and what they did.
struct Form {
  std::string name;
  int expected, got;
};

}  // namespace flash

// The functions of launches.cu, for one machine.
#define FLASH_LAUNCHES(machine)            \
  namespace flash::machine {               \
  std::vector<Form> run_forms(Machine& m); \
  }
