// Phase 05's kernel, compiled once per machine (cmake/kernels.cmake): one instantiation per element type.
// All there is to read is in attention.cuh.
// Use: phases/05-first-kernel/attention.hpp declares what is here.
#include "phases/05-first-kernel/attention.cuh"

namespace flash::phase05::inline FLASH_MACHINE {
template Run run(const Problem<float>&, const MachineOptions&);
template Run run(const Problem<half>&, const MachineOptions&);
template Run run(const Problem<bfloat16>&, const MachineOptions&);
}  // namespace flash::phase05::inline FLASH_MACHINE
