// Phase 14 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 13: Hopper's instructions: tiles are copied by TMA and multiplied by warpgroups (wgmma).
// Use: Run run = phase14::forward(problem, Where::Checked);
#pragma once
#include "phases/13-instruction-diet/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase14 {

// What is moved by whole tiles: O and LSE once; Q once, or only where its tile sees a key; for each Q tile the K/V
// tiles that one of its rows sees, from the first key to the last that any row of Q sees.
inline HbmBytes hbm_bytes_of_tiles(const AnyProblem& p, Blocks blocks, bool all_of_q) {
  const std::int64_t heads = p.B() * p.H(), row = p.row_bytes(), pair = row + p.v_row_bytes();
  std::int64_t keys = 0, q_rows = 0;
  const KeyRange<std::int64_t> all = p.seen(0, p.Sq() - 1);
  for (std::int64_t i = 0; i < p.Sq(); i += blocks.Br) {
    const std::int64_t end = std::min(i + blocks.Br, p.Sq());
    const KeyRange<std::int64_t> seen = p.seen(i, end - 1);
    keys += std::min((seen.end + blocks.Bc - 1) / blocks.Bc * blocks.Bc, all.end);
    keys -= seen.size() > 0 ? std::max(seen.begin / blocks.Bc * blocks.Bc, all.begin) : 0;
    q_rows += all_of_q || seen.size() > 0 ? end - i : 0;
  }
  return {static_cast<std::uint64_t>(heads * (q_rows * row + keys * pair)), bytes_written(p)};
}

// What phases 14 to 16 move.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  return hbm_bytes_of_tiles(p, blocks, false);
}

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse},
                                   .tensor_cores = true,
                                   .types = {Type::Float16, Type::BFloat16},
                                   .head_dims = {64, 128},
                                   .blocks = {{128, 128}, {128, 64}},
                                   .capability = {9, 0, true},
                                   .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features, &phase13::phase};
inline constinit Phase phase{
    "14-tma-wgmma", "Hopper: one thread copies whole tiles (TMA), warpgroups of 128 threads multiply them (wgmma)",
    &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase14
