// Phase 01's object: its declaration, what it moves, and its implementation compiled for all types.
// The implementation is in attention.hpp.
// Use: phase.hpp declares what is here.
#include "phases/01-naive/phase.hpp"

#include "phases/01-naive/attention.hpp"
#include "phases/interface/cpu_phase.hpp"

namespace flash::phase01 {

// Q and K are read and S is written; S is read and P written; P and V are read and O written. K and V pass once for
// every Br rows. The mask saves nothing.
static HbmBytes hbm_bytes(const Sizes& s, Blocks) {
  const std::int64_t heads = s.B * s.H, S = s.Sq * s.Sk * 4;  // fp32
  const std::int64_t Br = choose_blocks(s.options, s.Sq, s.D).Br, Tr = (s.Sq + Br - 1) / Br;
  const std::int64_t read = (s.Sq + Tr * 2 * s.Sk) * s.D * s.element_bytes + 2 * S;
  const std::int64_t written = 2 * S + s.Sq * s.D * s.element_bytes;
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

constinit Phase phase{features, hbm_bytes};
static const Added added(phase, Where::Sim, cpu_entries<features>([](const auto& p) { return attention(p); }));

}  // namespace flash::phase01
