// faults.hpp: kernels that the processor or the clock stops, as the host sees them, in the namespace of each machine.
// Use: included by faults.cu and faults_test.cpp; on_sim::run_recursion(machine, depth)
#pragma once
#include <cstddef>

#define FLASH_SIMT_FAULTS_TESTS                             \
  class Machine;                                            \
  int run_recursion(Machine& m, int depth);                 \
  int run_local_array(Machine& m, int kilobytes, int from); \
  int run_variable_array(Machine& m, int kilobytes);        \
  int run_division(Machine& m, int a, int b);               \
  unsigned run_long(Machine& m, unsigned stop, int blocks); \
  void run_endless(Machine& m, int kind);                   \
  float run_wild(Machine& m, std::ptrdiff_t index);         \
  void run_huge_allocation(Machine& m);

namespace flash {
namespace on_sim {
FLASH_SIMT_FAULTS_TESTS
}
namespace on_checked {
FLASH_SIMT_FAULTS_TESTS
}
namespace on_gpu {
FLASH_SIMT_FAULTS_TESTS
}
}  // namespace flash
#undef FLASH_SIMT_FAULTS_TESTS
