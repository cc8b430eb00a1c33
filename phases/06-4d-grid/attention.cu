// Phase 06's kernel, compiled once per machine (cmake/kernels.cmake): its entry points are added to the phase.
// All there is to read is in attention.cuh and, with other grids, variants.cuh.
// Use: phase.hpp declares what is here.
#include "phases/06-4d-grid/variants.cuh"

namespace flash::phase06::inline FLASH_MACHINE {
static const Added added = added_pass<features, Attention>(forward_pass);
static const bool variant_added = (variant_entries[static_cast<int>(this_machine)] = run_variant, true);
}  // namespace flash::phase06::inline FLASH_MACHINE
