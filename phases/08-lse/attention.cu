// Phase 08's kernel, compiled once per machine (cmake/kernels.cmake): one instantiation per element type.
// All there is to read is in attention.cuh.
// Use: phases/08-lse/attention.hpp declares what is here.
#include "phases/08-lse/attention.cuh"

namespace flash::phase08::inline FLASH_MACHINE {
template Run run(const Problem<float>&, const MachineOptions&);
template Run run(const Problem<half>&, const MachineOptions&);
template Run run(const Problem<bfloat16>&, const MachineOptions&);
}  // namespace flash::phase08::inline FLASH_MACHINE
