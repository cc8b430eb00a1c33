// Phase 15's object: its declaration and what it moves, which is what phase 14 moves. Its entry points are added by
// attention.cu. The kernel is in attention.cuh.
// Use: phase.hpp declares what is here.
#include "phases/15-warp-specialised/phase.hpp"

#include "phases/14-tma-wgmma/phase.hpp"

namespace flash::phase15 {

constinit Phase phase{features, phase14::hbm_bytes};

}  // namespace flash::phase15
