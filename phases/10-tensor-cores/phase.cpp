// Phase 10's object: its declaration and what it moves. Its entry points are added by attention.cu.
// The bytes are phase 04's with K/V tiles of one row: keys that no row of the Q tile sees are not loaded.
// Use: phase.hpp declares what is here.
#include "phases/10-tensor-cores/phase.hpp"

#include "phases/04-tiled-v2/phase.hpp"

namespace flash::phase10 {

static HbmBytes hbm_bytes(const Sizes& sizes, Blocks blocks) {
  return phase04::hbm_bytes_of(sizes, {blocks.Br, 1});
}

constinit Phase phase{features, hbm_bytes};

}  // namespace flash::phase10
