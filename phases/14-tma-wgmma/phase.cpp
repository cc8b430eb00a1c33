// Phase 14's object: its declaration and what it moves. Its entry points are added by attention.cu.
// Rows of Q whose tile sees no key at all are not read.
// Use: phase.hpp declares what is here.
#include "phases/14-tma-wgmma/phase.hpp"

namespace flash::phase14 {

constinit Phase phase{features, hbm_bytes};

}  // namespace flash::phase14
