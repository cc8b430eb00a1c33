// Phase 21's kernels, compiled once per machine (cmake/kernels.cmake): their entry points are added to the phase.
// All there is to read is in attention.cuh and tiles.cuh.
// Use: phase.hpp declares what is here.
#include "phases/21-backward-wgmma/attention.cuh"

namespace flash::phase21::inline FLASH_MACHINE {
static const Added backward_added = added_pass<backward_features, Gradients>(backward_pass);
}  // namespace flash::phase21::inline FLASH_MACHINE
