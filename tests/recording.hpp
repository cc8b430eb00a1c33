// recording.hpp: the launches of recording.cu and of recording_cluster.cu, once per machine.
// Use: on_checked::run_turned(3, true, {.recording = &recording});
#pragma once
#include "sim/machine_options.hpp"

#define FLASH_RUNS(machine)                                                             \
  namespace flash::machine {                                                            \
  void run_turned(int blocks, bool wait, const MachineOptions& options);                \
  void run_in_turn(int n, const MachineOptions& options);                               \
  void run_tiles(int n, const MachineOptions& options);                                 \
  void run_cluster_kernel(const char* name, int blocks, const MachineOptions& options); \
  }
FLASH_RUNS(on_sim)
FLASH_RUNS(on_checked)
