// Phase 28's kernels, compiled once per machine (cmake/phases.cmake): their entry points are added to the phase.
// All there is to read is in attention.cuh, modified.cuh, modifiers.cuh, bias.cuh and gradients.cuh.
// Use: phase.hpp declares what is here.
#include "phases/28-modifiers/attention.cuh"
#include "phases/28-modifiers/passes.cuh"

namespace flash::phase28::inline FLASH_MACHINE {
static const Added added = added_where_modified<features, Attention, forward_pass>();
static const Added backward_added = added_where_modified<backward_features, Gradients, backward_pass>();
}  // namespace flash::phase28::inline FLASH_MACHINE
