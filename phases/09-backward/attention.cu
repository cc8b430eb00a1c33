// Phase 09's kernels, compiled once per machine (cmake/kernels.cmake): their entry points are added to the phase.
// All there is to read is in forward.cuh and attention.cuh.
// Use: phase.hpp declares what is here.
#include "phases/09-backward/attention.cuh"

namespace flash::phase09::inline FLASH_MACHINE {
static const Added added(phase, this_machine, [] {
  Entries entries = forward_entries<features, Attention>();
  entries.backward = {run_backward<float>, run_backward<half>, run_backward<bfloat16>};
  return entries;
}());
}  // namespace flash::phase09::inline FLASH_MACHINE
