// host.cu: the host's side of the staircase: each step as phases are run, for one size. Compiled once per machine.
// The first step is phase 12's kernel.
// Use: steps.hpp declares what is here.
#include "phases/12-async-copies/attention.cuh"
#include "phases/13-instruction-diet/steps/1-scale.cuh"
#include "phases/13-instruction-diet/steps/2-loops.cuh"
#include "phases/13-instruction-diet/steps/3-addresses.cuh"
#include "phases/13-instruction-diet/steps/4-output.cuh"
#include "phases/13-instruction-diet/steps/5-order.cuh"
#include "phases/13-instruction-diet/steps/5-rows.cuh"
#include "phases/13-instruction-diet/steps/5-state.cuh"
#include "phases/13-instruction-diet/steps/5-tiles.cuh"
#include "phases/13-instruction-diet/steps/6-rescale.cuh"
#include "phases/13-instruction-diet/steps/7-maximum.cuh"
#include "phases/13-instruction-diet/steps/8-beside.cuh"
#include "phases/13-instruction-diet/steps/steps.hpp"

namespace flash::phase13::inline FLASH_MACHINE {
namespace {

// What is instantiated of a step: one type, one head dimension, one pair of blocks.
constexpr Features step_of(std::int64_t Br) {
  Features one = features;
  one.types = {Type::BFloat16}, one.head_dims = {128}, one.blocks = {{Br, 64}};
  return one;
}
constexpr Features rows_of_64 = step_of(64), rows_of_128 = step_of(128);

template <const Features& kCan, class Kernel>
Run step(const Problem<bfloat16>& p, const MachineOptions& options) {
  return run_pass<kCan, Kernel>(p, options);
}

const bool added = [] {
  const auto here = static_cast<std::size_t>(this_machine);
  steps_by_machine[here] = {
      step<rows_of_64, phase12::Attention>,        step<rows_of_64, scale::Attention>,
      step<rows_of_64, loops::Attention>,          step<rows_of_64, addresses::Attention>,
      step<rows_of_64, output::Attention>,         step<rows_of_64, row_tiles::Attention>,
      step<rows_of_64, state::Attention>,          step<rows_of_128, more_rows::Attention>,
      step<rows_of_128, longest_first::Attention>, step<rows_of_128, rare_rescale::Attention>,
      step<rows_of_128, maximum::Attention>,       step<rows_of_128, beside::Attention>,
  };
  return true;
}();

}  // namespace
}  // namespace flash::phase13::inline FLASH_MACHINE
