// Phase 30 declares itself: attention over a sequence that lies on several ranks, here threads of one process, each of
// which computes by the definition. Other engines and phases: flash-ring (phases/ring/mpi) and ring.hpp.
// Use: phase30::forward(problem);  ./flash run --phase 30 --ranks 4 --layout zig-zag …
#pragma once
#include "phases/definition/phase.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase30 {

inline constexpr int default_ranks = 4, most_ranks = 64;

// What pieces of a mask, merged by LSE, can do. Arrays with a number for each pair of a row and a key are not cut.
inline constexpr Features features{
    .meets = {Demand::Causal, Demand::Window, Demand::Lse, Demand::Kept, Demand::WideOutput, Demand::FewerHeads,
              Demand::OtherDv, Demand::Softcap, Demand::AnyStride, Demand::Ranks},
    .tiles = false};

inline constinit Pass forward_pass{features, &definition::phase}, backward_pass{features, &definition::phase};
inline constinit Phase phase{"30-ring", "a sequence spread over ranks: K and V travel round a ring, O is merged by LSE",
                             &forward_pass, &backward_pass};
inline constexpr ForwardOf forward{phase};

}  // namespace flash::phase30
