// trace.hpp: writes what warps did in logical time (sim/core/tracer.hpp) for Chrome's tracing page or Perfetto.
// Use: MachineOptions::trace names the file.
#pragma once
#include <iosfwd>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash::simt {

void write_trace(std::ostream& out, const std::vector<TraceEvent>& events, const std::vector<KernelReport>& launches);

}  // namespace flash::simt
