// steps.hpp: the kernels of the staircase as host code calls them, on each machine that the program holds.
// They stand on the way from phase 12, which is the first, to 13; compiled for one setting: bf16, D = 128.
// Use: const Run run = phase13::run_step(5, problem, Where::Checked);
#pragma once
#include <array>

#include "phases/13-instruction-diet/phase.hpp"
#include "phases/interface/limits.hpp"

namespace flash::phase13 {

using Step = Run (*)(const Problem<bfloat16>&, const MachineOptions&);
inline constexpr std::array step_names = {"0-copies", "1-scale", "2-loops", "3-addresses", "4-output",  "5-tiles",
                                          "5-state",  "5-rows",  "5-order", "6-rescale",   "7-maximum", "8-beside"};
inline constexpr std::size_t step_count = step_names.size();

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<std::array<Step, step_count>, 3> steps_by_machine{};

// O = softmax(Q Kᵀ · scale) V and LSE. q, k, v and o: [B, H, N, 128], dense, N a multiple of 128; no mask or
// top-left: what the page counts, and what the proof compares. Anything else is refused (Error), for phase 13 has it.
inline Run run_step(std::size_t step, const Problem<bfloat16>& p, Where where, const MachineOptions& options = {}) {
  const auto limit = [](bool holds, const std::string& what, const std::string& value, const std::string& allowed) {
    if (!holds) refuse(what, value, allowed, "use phase 13");
  };
  const auto check = [&](const char* name, const AnyView& view) {
    limit(view.shape == p.q.shape, std::string(name) + "'s shape", shape_text(view.shape), shape_text(p.q.shape));
    limit(view.stride == dense_strides(view.shape), std::string(name) + "'s stride", shape_text(view.stride), "dense");
  };
  if (step >= step_count)
    refuse("step", static_cast<std::int64_t>(step), "0 to " + std::to_string(step_count - 1), "choose one of these");
  check("Q", any_of(p.q)), check("K", any_of(p.k)), check("V", any_of(p.v)), check("O", any_of(p.o));
  limit(p.D() == 128, "D", std::to_string(p.D()), "128");
  limit(p.Sq() > 0 && p.Sq() % 128 == 0, "N", std::to_string(p.Sq()), "a multiple of 128");
  limit(p.lse != nullptr, "LSE", "null", "an array");
  limit(std::isfinite(p.scale()), "scale", std::to_string(p.scale()), "finite");
  limit(p.options.mask != Mask::bottom_right(), "mask", "bottom-right", "none or top-left");
  require(phase.name, features, where);
  return steps_by_machine[static_cast<std::size_t>(where)][step](p, options);
}

}  // namespace flash::phase13
