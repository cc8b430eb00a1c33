// Phase 11's object: its declaration and what it moves. Its entry points are added by attention.cu.
// The bytes are phase 10's: keys that no row of the Q tile sees are not loaded.
// Use: phase.hpp declares what is here.
#include "phases/11-swizzle/phase.hpp"

#include "phases/10-tensor-cores/phase.hpp"

namespace flash::phase11 {

constinit Phase phase{features, phase10::hbm_bytes_of};

}  // namespace flash::phase11
