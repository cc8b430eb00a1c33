// Phase 09's kernels, compiled once per machine (cmake/kernels.cmake): their entry points are added to the phase.
// All there is to read is in forward.cuh and attention.cuh.
// Use: phase.hpp declares what is here.
#include "phases/09-backward/attention.cuh"

namespace flash::phase09::inline FLASH_MACHINE {
static const Added forward_added = added_pass<features, Attention>(forward_pass);
static const Added backward_added = added_pass<backward_features, Gradients>(backward_pass);
}  // namespace flash::phase09::inline FLASH_MACHINE
