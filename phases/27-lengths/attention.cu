// Phase 27's kernels, compiled once per machine (cmake/phases.cmake): their entry points are added to the phase.
// All there is to read is in attention.cuh; mma.cu is the same for phase 27m.
// Use: phase.hpp declares what is here.
#include "phases/27-lengths/attention.cuh"

namespace flash::phase27::inline FLASH_MACHINE {
static const Added added = added_pass<features, Attention>(forward_pass);
static const Added backward_added = added_pass<backward_features, Gradients>(backward_pass);
}  // namespace flash::phase27::inline FLASH_MACHINE
