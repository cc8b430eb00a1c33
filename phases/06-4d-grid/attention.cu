// Phase 06's kernel, compiled once per machine (cmake/kernels.cmake): one instantiation per element type.
// All there is to read is in attention.cuh and, with other grids, variants.cuh.
// Use: phases/06-4d-grid/attention.hpp declares what is here.
#include "phases/06-4d-grid/variants.cuh"

namespace flash::phase06::inline FLASH_MACHINE {
template Run run(const Problem<float>&, const MachineOptions&);
template Run run(const Problem<half>&, const MachineOptions&);
template Run run(const Problem<bfloat16>&, const MachineOptions&);
}  // namespace flash::phase06::inline FLASH_MACHINE
