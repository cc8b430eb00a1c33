// Phase 13's object: its declaration and what it moves. Its entry points are added by attention.cu.
// The bytes are phase 04's with K/V tiles of one row (keys that no row of the Q tile sees are not loaded), less the
// rows of Q whose tile sees no key at all.
// Use: phase.hpp declares what is here.
#include "phases/13-instruction-diet/phase.hpp"

#include "phases/10-tensor-cores/phase.hpp"

namespace flash::phase13 {

static HbmBytes hbm_bytes(const Sizes& s, Blocks blocks) {
  HbmBytes bytes = phase10::hbm_bytes_of(s, blocks);
  for (std::int64_t i = 0; i < s.Sq; i += blocks.Br) {
    const std::int64_t end = std::min(i + blocks.Br, s.Sq);
    if (s.visible(end - 1).end == 0)
      bytes.read -= static_cast<std::uint64_t>(s.B * s.H * (end - i) * s.D * s.element_bytes);
  }
  return bytes;
}

constinit Phase phase{features, hbm_bytes};

}  // namespace flash::phase13
