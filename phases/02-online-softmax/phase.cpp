// Phase 02's object: its declaration, what it moves, and its implementation compiled for all types.
// The implementation is in attention.hpp.
// Use: phase.hpp declares what is here.
#include "phases/02-online-softmax/phase.hpp"

#include "phases/02-online-softmax/attention.hpp"
#include "phases/interface/cpu_phase.hpp"

namespace flash::phase02 {

// Q, O and LSE once; K and V once per row, as far as the row sees.
HbmBytes hbm_bytes(const AnyProblem& p, Blocks) {
  std::int64_t keys = 0;
  for (std::int64_t i = 0; i < p.Sq(); ++i) keys += p.visible(i).end;
  const std::int64_t heads = p.B() * p.H(), row = p.row_bytes();
  const std::int64_t read = p.Sq() * row + 2 * keys * row, written = p.Sq() * row + (p.lse.given() ? p.Sq() * 4 : 0);
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

static const Added added(forward_pass, Where::Sim, cpu_entry<features>([](const auto& p) { return attention(p); }));

}  // namespace flash::phase02
