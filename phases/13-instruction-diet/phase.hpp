// Phase 13 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 12: fewer instructions for the same products.
// Use: Run run = phase13::forward(problem, Where::Checked);
#pragma once
#include "phases/10-tensor-cores/phase.hpp"
#include "phases/12-async-copies/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase13 {

// What phase 10 moves, less the rows of Q whose tile sees no key at all.
inline HbmBytes hbm_bytes(const AnyProblem& p, Blocks blocks) {
  HbmBytes bytes = phase10::hbm_bytes_of(p, blocks);
  for (std::int64_t i = 0; i < p.Sq(); i += blocks.Br) {
    const std::int64_t end = std::min(i + blocks.Br, p.Sq());
    if (p.visible(end - 1).end == 0)
      bytes.read -= static_cast<std::uint64_t>(p.B() * p.H() * (end - i) * p.row_bytes());
  }
  return bytes;
}

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::Causal, Demand::Lse, Demand::Kept, Demand::WideOutput,
                                             Demand::AnyStride},
                                   .tensor_cores = true,
                                   .types = {Type::Float16, Type::BFloat16},
                                   .head_dims = {64, 128, 256},
                                   .blocks = {{128, 64}, {32, 16}},
                                   .capability = {8, 0},
                                   .hbm_bytes = hbm_bytes};

inline constinit Pass forward_pass{features, &phase12::phase};
inline constinit Phase phase{
    "13-instruction-diet",
    "32 rows per warp, scale inside exp2's multiply-add, no rescale until a maximum has grown by 2^8", &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase13
