// report.hpp: kernels whose every figure can be derived by hand and differs from every other, as the host sees them.
// One machine each: what it reports of the launches in it.
// Use: on_checked::run_uneven(options)
#pragma once
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

struct Traced {
  std::vector<KernelReport> reports;
  std::vector<TraceEvent> trace;
};

#define FLASH_SIMT_REPORT_TESTS                                             \
  std::vector<KernelReport> run_uneven(const MachineOptions& options);      \
  std::vector<KernelReport> run_interleaved(const MachineOptions& options); \
  std::vector<KernelReport> run_sparse(const MachineOptions& options);      \
  std::vector<KernelReport> run_ragged(const MachineOptions& options);      \
  std::vector<KernelReport> run_added(const MachineOptions& options);       \
  std::vector<KernelReport> run_freed(const MachineOptions& options);       \
  std::vector<KernelReport> run_typed(const MachineOptions& options);       \
  Traced run_tiles_ahead(const MachineOptions& options); /* report_ptx.cu */

namespace on_sim {
FLASH_SIMT_REPORT_TESTS
}
namespace on_checked {
FLASH_SIMT_REPORT_TESTS
}
namespace on_gpu {
FLASH_SIMT_REPORT_TESTS
}
#undef FLASH_SIMT_REPORT_TESTS

}  // namespace flash
