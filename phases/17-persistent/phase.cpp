// Phase 17's object: its declaration and what it moves. Its entry points are added by attention.cu.
// The bytes are those of whole tiles, and those of the counter from which blocks draw their work.
// Use: phase.hpp declares what is here.
#include "phases/17-persistent/phase.hpp"

namespace flash::phase17 {

constinit Phase phase{features, hbm_bytes};

}  // namespace flash::phase17
