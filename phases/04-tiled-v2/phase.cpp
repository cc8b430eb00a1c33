// Phase 04's object: its declaration, what it moves, and its implementation compiled for all types.
// The implementation is in attention.hpp.
// Use: phase.hpp declares what is here.
#include "phases/04-tiled-v2/phase.hpp"

#include "phases/04-tiled-v2/attention.hpp"
#include "phases/interface/cpu_phase.hpp"

namespace flash::phase04 {

static HbmBytes hbm_bytes(const Sizes& s, Blocks) {
  return hbm_bytes_of(s, choose_blocks(s.options, s.D));
}

constinit Phase phase{features, hbm_bytes};
static const Added added(phase, Where::Sim, cpu_entries<features>([](const auto& p) { return attention(p); }));

}  // namespace flash::phase04
