// variables.hpp: what variables.cu does on each machine: kernels with __shared__, __device__ and __constant__ variables
// in every form, and kernels that leave them. No CUDA word enters here. Use: simt_variables_test
#pragma once
#include <string>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

// A form of a variable: what a kernel with it should give, and what it gave.
struct VariableForm {
  std::string name;
  long expected, got;
};

}  // namespace flash

// run_variables: every form. run_defect: the kernel of that name with an index that leaves its array by so much.
// copy_symbol: copies so many bytes to a __constant__ variable of 16, or (host) to a variable of the host.
#define FLASH_VARIABLES(machine)                                   \
  namespace flash::machine {                                       \
  std::vector<VariableForm> run_variables(Machine& m);             \
  void run_defect(Machine& m, const std::string& name, int index); \
  void copy_symbol(std::size_t bytes, bool host);                  \
  }
