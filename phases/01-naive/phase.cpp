// Phase 01's object: its declaration, what it moves, and its implementation compiled for all types.
// The implementation is in attention.hpp.
// Use: phase.hpp declares what is here.
#include "phases/01-naive/phase.hpp"

#include "phases/01-naive/attention.hpp"
#include "phases/interface/cpu_phase.hpp"

namespace flash::phase01 {

// Q and K are read and S is written; S is read and P written; P and V are read and O written. K and V pass once for
// every Br rows. The mask saves nothing.
HbmBytes hbm_bytes(const AnyProblem& p, Blocks) {
  const std::int64_t heads = p.B() * p.H(), S = p.Sq() * p.Sk() * 4;  // fp32
  const std::int64_t Br = choose_blocks(p.options, p.Sq(), p.D()).Br, Tr = (p.Sq() + Br - 1) / Br;
  const std::int64_t read = (p.Sq() + Tr * 2 * p.Sk()) * p.row_bytes() + 2 * S;
  const std::int64_t written = 2 * S + p.Sq() * p.row_bytes();
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

static const Added added(forward_pass, Where::Sim, cpu_entry<features>([](const auto& p) { return attention(p); }));

}  // namespace flash::phase01
