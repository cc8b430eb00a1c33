// Phase 19's object: its declaration and what it moves, which is what phase 17 moves. Its entry points are added by
// attention.cu. The kernel is in attention.cuh.
// Use: phase.hpp declares what is here.
#include "phases/19-beyond/phase.hpp"

#include "phases/17-persistent/phase.hpp"

namespace flash::phase19 {

constinit Phase phase{features, phase17::hbm_bytes};

}  // namespace flash::phase19
