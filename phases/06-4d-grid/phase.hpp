// Phase 06 declares itself: what it can do, and its entry points. The kernel is in attention.cuh.
// New since 05: all heads in one launch; forward_variant() does the same with two other grids (variants.cuh).
// Use: Run run = phase06::forward(problem, Where::Checked);
#pragma once
#include "phases/04-tiled-v2/phase.hpp"
#include "phases/05-first-kernel/phase.hpp"
#include "phases/06-4d-grid/grid.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase06 {

inline constexpr Features features{.kernel = true,
                                   .meets = {Demand::AnyStride},
                                   .same_bits = true,
                                   .blocks = {{64, 32}, {32, 64}, {16, 16}},
                                   .hbm_bytes = phase04::hbm_bytes_of};

inline constinit Pass forward_pass{features, &phase05::phase};
inline constinit Phase phase{"06-4d-grid",
                             "a kernel that takes [B, H, S, D] with any strides: one grid for all Q tiles of all heads",
                             &forward_pass};
// O = softmax(Q Kᵀ · scale) V on the machine that `where` names.
inline constexpr ForwardOf forward{phase};

// fp32 alone is compiled for the other grids.
inline constexpr Features variant_features = [] {
  Features same = features;
  same.types = {Type::Float32};
  return same;
}();

// The same with another grid; fp32 only, for the order of blocks does not depend on the type.
using VariantEntry = Run (*)(const Problem<float>& p, Grid grid, const MachineOptions& options);
extern std::array<VariantEntry, 3> variant_entries;  // by machine, as Pass::entries
Run forward_variant(const Problem<float>& p, Grid grid, Where where = Where::Sim, const MachineOptions& options = {});

}  // namespace flash::phase06
