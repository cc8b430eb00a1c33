// Phase 20's kernels, compiled once per machine (cmake/kernels.cmake): their entry points are added to the phase.
// All there is to read is in attention.cuh, row_terms.cuh and rows_backward.cuh.
// Use: phase.hpp declares what is here.
#include "phases/20-backward-tensor-cores/attention.cuh"

namespace flash::phase20::inline FLASH_MACHINE {
static const Added backward_added = added_pass<backward_features, Gradients>(backward_pass);
}  // namespace flash::phase20::inline FLASH_MACHINE
