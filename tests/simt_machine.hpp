// simt_machine.hpp: the host functions of simt_machine.cu, in the namespace of each machine.
// The test calls them through overloading on the machine: run_transpose(m, …) finds m's own.
// Use: included by simt_machine.cu and simt_machine_test.cpp.
#pragma once
#include <vector>

#define FLASH_SIMT_MACHINE_TESTS                                                     \
  class Machine;                                                                     \
  void run_transpose(Machine& m, const float* host_in, float* host_out, int n);      \
  void run_block_sum(Machine& m, const float* host_in, float* host_out, int blocks); \
  void run_nothing(Machine& m, const unsigned grid[3], const unsigned block[3]);     \
  int run_shared(Machine& m, int kilobytes);                                         \
  void run_wrong_struct(Machine& m);                                                 \
  std::vector<unsigned> run_number_threads(Machine& m);                              \
  void run_crossed(Machine& m);                                                      \
  int run_hand_over(Machine& m);                                                     \
  unsigned run_counting(Machine& m);                                                 \
  bool run_fresh(Machine& m);                                                        \
  std::vector<unsigned> run_sequence(Machine& m, unsigned blocks, unsigned threads); \
  unsigned run_rendezvous(Machine& m);                                               \
  void run_copy_float3(Machine& m);                                                  \
  void run_put(Machine& m);                                                          \
  void run_bounded(Machine& m, unsigned threads);                                    \
  float run_last_block(Machine& m, bool fence);                                      \
  void run_distant_blocks(Machine& m);                                               \
  std::vector<int> run_half_warps(Machine& m);                                       \
  std::vector<unsigned> run_halves(Machine& m, float x, double y, int n);            \
  std::vector<int> run_allowed(Machine& m);                                          \
  double run_elements(Machine& m, bool halves, bool writes, double (*measure)());    \
  void run_marked(Machine& m);

namespace flash {
namespace on_sim {
FLASH_SIMT_MACHINE_TESTS
}
namespace on_checked {
FLASH_SIMT_MACHINE_TESTS
}
namespace on_gpu {
FLASH_SIMT_MACHINE_TESTS
}
}  // namespace flash
#undef FLASH_SIMT_MACHINE_TESTS
