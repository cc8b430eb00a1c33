// Phase 09's kernels, compiled once per machine (cmake/kernels.cmake): one instantiation per element type.
// All there is to read is in forward.cuh and attention.cuh.
// Use: phases/09-backward/attention.hpp declares what is here.
#include "phases/09-backward/attention.cuh"

namespace flash::phase09::inline FLASH_MACHINE {
template Run run_forward(const Problem<float>&, const View<std::int16_t>&, const MachineOptions&);
template Run run_forward(const Problem<half>&, const View<std::int16_t>&, const MachineOptions&);
template Run run_forward(const Problem<bfloat16>&, const View<std::int16_t>&, const MachineOptions&);
template Run run_backward(const GradientProblem<float>&, Mode, const MachineOptions&);
template Run run_backward(const GradientProblem<half>&, Mode, const MachineOptions&);
template Run run_backward(const GradientProblem<bfloat16>&, Mode, const MachineOptions&);
}  // namespace flash::phase09::inline FLASH_MACHINE
