// Phase 17 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 16: one block per multiprocessor draws tiles; O leaves by stmatrix and TMA while the next tile begins.
// Use: Run run = phase17::forward(problem, Where::Checked);
#pragma once
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/16-overlap/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase17 {

// What phases 17 to 19 move on the simulator: whole tiles, all of Q, and the counter: each block draws a number for
// each of its Q tiles but the first, and one too many; one block resets it. That is a draw for each tile.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  HbmBytes bytes = phase14::hbm_bytes_of_tiles(p, blocks, true);
  const std::int64_t tiles = p.B() * p.H() * ((p.Sq() + blocks.Br - 1) / blocks.Br);
  if (tiles > 0)
    bytes.read += static_cast<std::uint64_t>(4 * tiles), bytes.written += static_cast<std::uint64_t>(4 * (tiles + 1));
  return bytes;
}

// The number from which blocks draw their Q tiles.
inline Workspace counter(const AnyProblem&) {
  return {{"counter", 1, true}};
}

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse, Demand::SpareMultiprocessors},
                                   .tensor_cores = true,
                                   .types = {Type::Float16, Type::BFloat16},
                                   .head_dims = {64, 128},
                                   .blocks = {{128, 128}, {128, 64}},
                                   .capability = {9, 0, true},
                                   .hbm_bytes = hbm_bytes,
                                   .workspace = counter};

inline constinit Pass forward_pass{features, &phase16::phase};
inline constinit Phase phase{
    "17-persistent",
    "one block per multiprocessor draws tiles; O leaves by stmatrix and TMA while the next tile begins", &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase17
