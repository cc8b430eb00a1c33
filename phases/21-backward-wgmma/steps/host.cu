// host.cu: the host's side of the step, as phases are run. Compiled once per machine.
// Use: steps.hpp declares what is here.
#include "phases/21-backward-wgmma/steps/1-scalar.cuh"

namespace flash::phase21::inline FLASH_MACHINE {
static const Added scalar_added = added_pass<one_size, scalar::Gradients>(scalar_pass);
}  // namespace flash::phase21::inline FLASH_MACHINE
