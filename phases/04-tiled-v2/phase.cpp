// Phase 04's object: its declaration, what it moves, and its implementation compiled for all types.
// The implementation is in attention.hpp.
// Use: phase.hpp declares what is here.
#include "phases/04-tiled-v2/phase.hpp"

#include "phases/04-tiled-v2/attention.hpp"
#include "phases/interface/cpu_phase.hpp"

namespace flash::phase04 {

HbmBytes hbm_bytes(const AnyProblem& p, Blocks) {
  return hbm_bytes_of(p, choose_blocks(p.options, p.D()));
}

static const Added added(forward_pass, Where::Sim, cpu_entry<features>([](const auto& p) { return attention(p); }));

}  // namespace flash::phase04
