// Phase 02's object: its declaration, what it moves, and its implementation compiled for all types.
// The implementation is in attention.hpp.
// Use: phase.hpp declares what is here.
#include "phases/02-online-softmax/phase.hpp"

#include "phases/02-online-softmax/attention.hpp"
#include "phases/interface/cpu_phase.hpp"

namespace flash::phase02 {

// Q, O and LSE once; K and V once per row, as far as the row sees.
static HbmBytes hbm_bytes(const Sizes& s, Blocks) {
  std::int64_t keys = 0;
  for (std::int64_t i = 0; i < s.Sq; ++i) keys += s.visible(i).end;
  const std::int64_t heads = s.B * s.H, row = s.D * s.element_bytes;
  const std::int64_t read = s.Sq * row + 2 * keys * row, written = s.Sq * row + (s.lse ? s.Sq * 4 : 0);
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

constinit Phase phase{features, hbm_bytes};
static const Added added(phase, Where::Sim, cpu_entries<features>([](const auto& p) { return attention(p); }));

}  // namespace flash::phase02
