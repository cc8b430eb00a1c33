// Phase 06's object: its declaration and what it moves. Its entry points are added by attention.cu.
// The bytes are phase 04's: each Q tile loads the K/V tiles that its last row sees.
// Use: phase.hpp declares what is here.
#include "phases/06-4d-grid/phase.hpp"

#include "phases/04-tiled-v2/phase.hpp"

namespace flash::phase06 {

constinit Phase phase{features, phase04::hbm_bytes_of};

constinit std::array<VariantEntry, 3> variant_entries{};

Run forward_variant(const Problem<float>& p, Grid grid, Where where, const MachineOptions& options) {
  validate(p, features);
  require(features, where);
  return variant_entries[static_cast<std::size_t>(where)](p, grid, options);
}

}  // namespace flash::phase06
