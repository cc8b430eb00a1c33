// Phase 03's object: its declaration, what it moves, and its implementation compiled for all types.
// The implementation is in attention.hpp.
// Use: phase.hpp declares what is here.
#include "phases/03-tiled-v1/phase.hpp"

#include "phases/03-tiled-v1/attention.hpp"
#include "phases/interface/cpu_phase.hpp"

namespace flash::phase03 {

// K and V once; Q, O, l and m once per K/V tile, O in fp32 until its last pass; O, l and m are set first.
HbmBytes hbm_bytes(const AnyProblem& p, Blocks) {
  const std::int64_t heads = p.B() * p.H(), row = p.row_bytes(), Bc = choose_blocks(p.options, p.D()).Bc;
  const std::int64_t Tc = (p.Sk() + Bc - 1) / Bc, O = p.Sq() * p.D() * 4, lm = 2 * p.Sq() * 4;
  std::int64_t read = 2 * p.Sk() * row + Tc * (p.Sq() * row + O + lm);
  const std::int64_t written = (O + lm) + Tc * lm + (Tc > 0 ? (Tc - 1) * O : 0) + p.Sq() * row;
  if (Tc == 0) read += O;  // no key: O is read once, to be rounded
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

static const Added added(forward_pass, Where::Sim, cpu_entry<features>([](const auto& p) { return attention(p); }));

}  // namespace flash::phase03
