// host.cu: the host's side of stages.cuh: one block adds up the tiles of x, with two stages or with three.
// Compiled once per machine.
// Use: steps.hpp declares what is here.
#include "phases/12-async-copies/steps/stages.cuh"
#include "phases/12-async-copies/steps/steps.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase12::inline FLASH_MACHINE {
namespace {

template <int kStages>
Sum sum_of(const MachineOptions& options, const std::vector<float>& host_x) {
  Machine m(options);
  const auto x = m.upload("x", host_x.data(), host_x.size());
  const auto y = m.alloc<float>("y", kTile);
  const int tiles = static_cast<int>(host_x.size()) / kTile;
  add_tiles<kStages><<<1, kThreads, sizeof(Stages<kStages>)>>>(x.data(), y.data(), tiles);
  Sum sum{std::vector<float>(kTile), {}, m.trace()};
  m.download(sum.y.data(), y);
  if (!m.reports().empty()) sum.ledger = m.reports().back().ledger;
  return sum;
}

const bool added = [] {
  stages_by_machine[static_cast<std::size_t>(this_machine)] = {sum_of<2>, sum_of<3>};
  return true;
}();

}  // namespace
}  // namespace flash::phase12::inline FLASH_MACHINE
