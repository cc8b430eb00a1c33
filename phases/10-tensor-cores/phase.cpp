// Phase 10's object: its declaration and what it moves. Its entry points are added by attention.cu.
// The bytes are phase 04's, less the keys that no row of the Q tile sees: hbm_bytes_of() in phase.hpp.
// Use: phase.hpp declares what is here.
#include "phases/10-tensor-cores/phase.hpp"

namespace flash::phase10 {

constinit Phase phase{features, hbm_bytes_of};

}  // namespace flash::phase10
