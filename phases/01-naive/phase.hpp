// Phase 01 declares itself: what it can do, and its entry points. The implementation is in attention.hpp.
// Programs and tests call forward(), compiled once; attention.hpp is for those who read or include it.
// Use: Run run = phase01::forward(problem);
#pragma once
#include <algorithm>

#include "phases/interface/phase.hpp"

namespace flash::phase01 {

// #region blocks
// The two products go tile by tile through SRAM: Br rows of Q (or O), Bc keys, and Br x Bc numbers of S (or P). K and V
// pass once for every Br rows, so few keys and as many rows as fit move the fewest bytes; all rows, where they fit.
inline Blocks choose_blocks(const Options& options, std::int64_t Sq, std::int64_t D) {
  const std::int64_t Bc = 16, fit = (options.sram_bytes / 4 - Bc * D) / (D + Bc);
  return {std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(Sq, 1)), Bc};
}
// #endregion

// Q and K are read and S is written; S is read and P written; P and V are read and O written. K and V pass once for
// every Br rows. The mask saves nothing.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks) {
  const std::int64_t heads = p.B() * p.H(), S = p.Sq() * p.Sk() * 4;  // fp32
  const std::int64_t Br = choose_blocks(p.options, p.Sq(), p.D()).Br, Tr = (p.Sq() + Br - 1) / Br;
  const std::int64_t read = (p.Sq() + Tr * 2 * p.Sk()) * p.row_bytes() + 2 * S;
  const std::int64_t written = 2 * S + p.Sq() * p.row_bytes();
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

inline constexpr Features features{
    .meets = {Demand::Causal, Demand::AnyStride}, .tiles = false, .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features};
inline constinit Phase phase{
    "01-naive", "S = QK^T and P = softmax(S) as whole matrices: every element is written and read back", &forward_pass};
// O = softmax(Q Kᵀ · scale) V; the ledger says what it cost.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase01
