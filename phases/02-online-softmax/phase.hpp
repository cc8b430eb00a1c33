// Phase 02 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once; attention.hpp is for those who read or include it.
// Use: Run run = phase02::forward(problem);
#pragma once
#include <algorithm>

#include "phases/01-naive/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase02 {

// Q, O and LSE once; K and V once per row, as far as the row sees.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks) {
  std::int64_t keys = 0;
  for (std::int64_t i = 0; i < p.Sq(); ++i) keys += p.visible(i).end;
  const std::int64_t heads = p.B() * p.H(), row = p.row_bytes();
  const std::int64_t read = p.Sq() * row + 2 * keys * row, written = p.Sq() * row + (p.lse.given() ? p.Sq() * 4 : 0);
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

inline constexpr Features features{
    .meets = {Demand::Causal, Demand::Lse, Demand::AnyStride}, .tiles = false, .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features, &phase01::phase};
inline constinit Phase phase{"02-online-softmax",
                             "one pass with the state (m, l, o): S and P are gone, but K and V pass once per row",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase02
