// machine_state.hpp: what a machine holds between its launches, and what runs one.
// Use: sim/machine.cpp is the machine as host code sees it, sim/launch.cpp a launch; nobody else includes this.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/checks/checker.hpp"
#include "sim/core/block.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/core/faults.hpp"
#include "sim/machine.hpp"

namespace flash::simt {

struct MachineState {
  MachineOptions options;
  bool checked;
  Handlers handlers;
  DeviceMemory memory;
  std::unique_ptr<GlobalShadow> shadow;  // checked only
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Checker*> checkers;  // checked only: the workers'
  std::vector<KernelReport> reports;
  // Kernels of the last reports, and their names in the source: looked up when somebody asks.
  std::vector<std::pair<const void*, const char*>> unnamed;
  std::vector<Finding> findings;
  std::vector<TraceEvent> trace;
  std::map<const void*, std::size_t> allowed_shared;  // bytes, by kernel
  std::map<const void*, dim3> cluster_dims;           // of kernels that have said so

  const std::vector<KernelReport>& named_reports();
};

std::string kernel_name(const void* kernel, const char* in_launch);

// Runs all blocks; what they did is in the machine's reports, findings and trace then.
void run_launch(MachineState& machine, Launch& launch);

}  // namespace flash::simt
