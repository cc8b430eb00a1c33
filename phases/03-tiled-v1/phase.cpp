// Phase 03's object: its declaration, what it moves, and its implementation compiled for all types.
// The implementation is in attention.hpp.
// Use: phase.hpp declares what is here.
#include "phases/03-tiled-v1/phase.hpp"

#include "phases/03-tiled-v1/attention.hpp"
#include "phases/interface/cpu_phase.hpp"

namespace flash::phase03 {

// K and V once; Q, O, l and m once per K/V tile, O in fp32 until its last pass; O, l and m are set first.
static HbmBytes hbm_bytes(const Sizes& s, Blocks) {
  const std::int64_t heads = s.B * s.H, row = s.D * s.element_bytes, Bc = choose_blocks(s.options, s.D).Bc;
  const std::int64_t Tc = (s.Sk + Bc - 1) / Bc, O = s.Sq * s.D * 4, lm = 2 * s.Sq * 4;
  std::int64_t read = 2 * s.Sk * row + Tc * (s.Sq * row + O + lm);
  const std::int64_t written = (O + lm) + Tc * lm + (Tc > 0 ? (Tc - 1) * O : 0) + s.Sq * row;
  if (Tc == 0) read += O;  // no key: O is read once, to be rounded
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

constinit Phase phase{features, hbm_bytes};
static const Added added(phase, Where::Sim, cpu_entries<features>([](const auto& p) { return attention(p); }));

}  // namespace flash::phase03
