// steps.hpp: the kernel on the way from phase 20 to 21, as a phase of its own that no list names: compiled for bf16 and
// D = 128.
// Use: flash::backward(phase21::scalar_step, gradients, Where::Checked, {}, BackwardMode::Atomic);
#pragma once
#include "phases/21-backward-wgmma/phase.hpp"

namespace flash::phase21 {

inline constexpr Features one_size = [] {
  Features f = backward_features;
  f.types = {Type::BFloat16}, f.head_dims = {128}, f.blocks = {{64, 128}}, f.hbm_bytes = nullptr;
  return f;
}();
inline constinit Pass scalar_pass{one_size, &phase20::phase};
inline constinit Phase scalar_step{"21-backward-wgmma/1-scalar", "dQ's sum lies row by row, added to number by number",
                                   &phase19::forward_pass, &scalar_pass};

}  // namespace flash::phase21
