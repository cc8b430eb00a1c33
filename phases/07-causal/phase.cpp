// Phase 07's object: its declaration and what it moves. Its entry points are added by attention.cu.
// The bytes are phase 04's: each Q tile loads the K/V tiles that its last row sees.
// Use: phase.hpp declares what is here.
#include "phases/07-causal/phase.hpp"

#include "phases/04-tiled-v2/phase.hpp"

namespace flash::phase07 {

constinit Phase phase{features, phase04::hbm_bytes_of};

}  // namespace flash::phase07
