// host.cu: the host's side of the staircase: each step as phases are run, for one size. Compiled once per machine.
// The first step is phase 12's kernel. Then phase 13's for training, and with O in fp32.
// Use: steps.hpp declares what is here.
#include "phases/12-async-copies/attention.cuh"
#include "phases/13-instruction-diet/attention.cuh"
#include "phases/13-instruction-diet/steps/1-scale.cuh"
#include "phases/13-instruction-diet/steps/2-loops.cuh"
#include "phases/13-instruction-diet/steps/3-addresses.cuh"
#include "phases/13-instruction-diet/steps/4-output.cuh"
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

// Phase 13's kernel for training, and with O in fp32 (o: as p.o, dense), whatever D and mask.
constexpr Features all_of_128 = [] {
  Features f = features;
  f.blocks = {{128, 64}};
  return f;
}();
template <class T>
Run training(const Problem<T>& asked, const Kept& kept, const MachineOptions& options) {
  Problem<T> p = asked;
  p.kept = kept;
  return run_pass<all_of_128, Training>(p, options);
}
template <class T>
Run wide(const Problem<T>& p, float* o, bool for_training, const MachineOptions& options) {
  AnyProblem any(p);
  any.out = Type::Float32, any.o = any_of(dense_view(o, p.o.shape)), any.lse = {};
  return run_on_device(any, {}, options, [&](const AnyProblem& device, const Stream& stream) {
    using U = device_t<T>;
    const DeviceProblem<U> problem = device_problem<U>(device, stream);
    with_sizes<all_of_128>(p.D(), {128, 64}, [&]<int D, int Br, int Bc>() {
      for_training ? Training::launch_to<U, D, Br, Bc>(problem, heads_of<float>(device.o))
                   : Attention::launch_to<U, D, Br, Bc>(problem, heads_of<float>(device.o));
    });
  });
}

const bool added = [] {
  const auto here = static_cast<std::size_t>(this_machine);
  training_by_machine<half>[here] = training, training_by_machine<bfloat16>[here] = training;
  wide_by_machine<half>[here] = wide, wide_by_machine<bfloat16>[here] = wide;
  steps_by_machine[here] = {
      step<rows_of_64, phase12::Attention>,       step<rows_of_64, scale::Attention>,
      step<rows_of_64, loops::Attention>,         step<rows_of_64, addresses::Attention>,
      step<rows_of_64, output::Attention>,        step<rows_of_64, row_tiles::Attention>,
      step<rows_of_64, state::Attention>,         step<rows_of_128, more_rows::Attention>,
      step<rows_of_128, rare_rescale::Attention>, step<rows_of_128, maximum::Attention>,
      step<rows_of_128, beside::Attention>,
  };
  return true;
}();

}  // namespace
}  // namespace flash::phase13::inline FLASH_MACHINE
