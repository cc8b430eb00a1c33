// host.cu: the kernels of the staircase get their entry points, as phases do. Compiled once per machine.
// Each is compiled for one setting; steps.hpp says which.
// Use: steps.hpp declares what is here.
#include "phases/18-diet/steps/1-registers.cuh"
#include "phases/18-diet/steps/2-stages.cuh"
#include "phases/18-diet/steps/3-maximum.cuh"
#include "phases/18-diet/steps/4-loops.cuh"
#include "phases/18-diet/steps/5-barriers.cuh"
#include "phases/18-diet/steps/6-seam.cuh"
#include "phases/18-diet/steps/steps.hpp"

namespace flash::phase18::inline FLASH_MACHINE {

static const Added added_registers = added_pass<one_size, registers::Attention>(registers_pass);
static const Added added_stages = added_pass<one_size, stages::Attention>(stages_pass);
static const Added added_maximum = added_pass<one_size, maximum::Attention>(maximum_pass);
static const Added added_loops = added_pass<one_size, loops::Attention>(loops_pass);
static const Added added_barriers = added_pass<one_size, barriers::Attention>(barriers_pass);
static const Added added_seam = added_pass<one_size, seam::Attention>(seam_pass);

}  // namespace flash::phase18::inline FLASH_MACHINE
