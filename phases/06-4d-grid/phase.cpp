// Phase 06's other grids: which of them a call gets on which machine. Their entry points are added by attention.cu.
// The kernels are in variants.cuh.
// Use: phase.hpp declares what is here.
#include "phases/06-4d-grid/phase.hpp"

#include "phases/interface/validate.hpp"

namespace flash::phase06 {

constinit std::array<VariantEntry, 3> variant_entries{};

Run forward_variant(const Problem<float>& p, Grid grid, Where where, const MachineOptions& options) {
  validate(p, phase);
  require(phase.name, features, where);
  return variant_entries[static_cast<std::size_t>(where)](p, grid, options);
}

}  // namespace flash::phase06
