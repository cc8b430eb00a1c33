// Phase 19's kernel, compiled once per machine (cmake/kernels.cmake): its entry points are added to the phase.
// All there is to read is in attention.cuh.
// Use: phase.hpp declares what is here.
#include "phases/19-beyond/attention.cuh"

namespace flash::phase19::inline FLASH_MACHINE {
static const Added added(phase, this_machine, forward_entries<features, Attention>());
}  // namespace flash::phase19::inline FLASH_MACHINE
