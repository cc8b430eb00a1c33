// phase.hpp: the definition as programs see a phase: on the CPU, of all types and sizes, with all that can be asked.
// It is no step of the course and not in its list; it is found by its name, and taken where no phase can.
// Use: enter(definition::phase, problem);  ./flash run --phase definition …
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::definition {

inline constexpr Features features{
    .meets = {Demand::Causal, Demand::Window, Demand::Lse, Demand::Kept, Demand::WideOutput, Demand::FewerHeads,
              Demand::OtherDv, Demand::Lengths, Demand::Softcap, Demand::Alibi, Demand::Bias, Demand::BoolMask,
              Demand::Documents, Demand::BlockMask, Demand::Sinks, Demand::Dropout, Demand::AnyStride},
    .records = false,
    .tiles = false};

inline constinit Pass forward_pass{features}, backward_pass{features};
inline constinit Phase phase{"definition", "attention as docs/conventions.md defines it, row by row on the CPU",
                             &forward_pass, &backward_pass};

}  // namespace flash::definition
