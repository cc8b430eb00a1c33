// Phase 28m's kernels, compiled once per machine (cmake/phases.cmake): their entry points are added to the phase.
// All there is to read is in mma.cuh, modified.cuh, modifiers.cuh and gradients.cuh.
// Use: phase.hpp declares what is here.
#include "phases/28-modifiers/mma.cuh"
#include "phases/28-modifiers/passes.cuh"

namespace flash::phase28m::inline FLASH_MACHINE {
static const Added added = added_where_modified<features, Attention, forward_pass>();
static const Added backward_added = added_where_modified<backward_features, Gradients, backward_pass>();
}  // namespace flash::phase28m::inline FLASH_MACHINE
