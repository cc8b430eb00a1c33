// Phase 24's kernels, compiled once per machine (cmake/kernels.cmake): their entry points are added to the phase.
// All there is to read is in attention.cuh, pieces.cuh and wide.cuh.
// Use: phase.hpp declares what is here.
#include "phases/24-backward-fused/attention.cuh"

namespace flash::phase24::inline FLASH_MACHINE {
static const Added backward_added = added_pass<backward_features, Gradients>(backward_pass);
}  // namespace flash::phase24::inline FLASH_MACHINE
