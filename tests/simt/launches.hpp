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
// run_forms: every form of a launch.
// launch_nothing: nothing<<<1, 1>>>() on the current machine, whichever it is.
// run_parent: a kernel that launches another (not under nvcc, which wants -rdc for it).
// run_defects: defects behind launches of several lines, marked //@ defect:1 to 3.
// run_shared: gives so many bytes of shared memory after asking for others (-1: not at all); run_shared_deduced: the
// same of a deduced kernel.
// run_struct: gives so many bytes, which the kernel takes for a struct of 256, and writes 4 bytes of it.
#define FLASH_LAUNCHES(machine)                   \
  namespace flash::machine {                      \
  std::vector<Form> run_forms(Machine& m);        \
  void launch_nothing();                          \
  void run_parent(Machine& m);                    \
  void run_defects(Machine& m);                   \
  void run_shared(int bytes, int asked);          \
  void run_shared_deduced(Machine& m, int bytes); \
  void run_struct(int bytes, int at);             \
  }
