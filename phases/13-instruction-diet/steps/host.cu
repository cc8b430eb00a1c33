// host.cu: the host's side of the staircase: memory, grid and launch of each step. Compiled once per machine.
// All steps take the same arguments; their tiles differ.
// Use: steps.hpp declares what is here.
#include "phases/13-instruction-diet/steps/0-copies.cuh"
#include "phases/13-instruction-diet/steps/1-scale.cuh"
#include "phases/13-instruction-diet/steps/2-loops.cuh"
#include "phases/13-instruction-diet/steps/3-addresses.cuh"
#include "phases/13-instruction-diet/steps/4-output.cuh"
#include "phases/13-instruction-diet/steps/5-rows.cuh"
#include "phases/13-instruction-diet/steps/6-rescale.cuh"
#include "phases/13-instruction-diet/steps/7-maximum.cuh"
#include "phases/13-instruction-diet/steps/8-beside.cuh"
#include "phases/13-instruction-diet/steps/steps.hpp"

namespace flash::phase13::inline FLASH_MACHINE {
namespace {

template <auto kernel, class Tiles>
Run attention_step(const Problem<bfloat16>& p, const MachineOptions& options) {
  Machine m(options);
  const int N = static_cast<int>(p.Sq()), heads = static_cast<int>(p.B() * p.H());
  const auto elements = static_cast<std::size_t>(p.q.elements());
  using T = device_t<bfloat16>;
  const Array<T> Q = m.upload("Q", p.q.data, elements);
  const Array<T> K = m.upload("K", p.k.data, elements);
  const Array<T> V = m.upload("V", p.v.data, elements);
  const Array<T> O = m.alloc<T>("O", elements);
  const Array<float> LSE = m.alloc<float>("LSE", elements / 128);
  allow_shared_memory(kernel, sizeof(Tiles));
  constexpr int Br = sizeof(Tiles::Q) / (128 * sizeof(T));
  const Run run = timed(m, [&] {
    kernel<<<dim3(N / Br, heads), 128, sizeof(Tiles)>>>(Q.data(), K.data(), V.data(), O.data(), LSE.data(), N,
                                                        scale_log2(p.scale()), p.options.mask == Mask::top_left());
  });
  m.download(p.o.data, O);
  m.download(p.lse, LSE);
  return run;
}

const bool added = [] {
  steps_by_machine[static_cast<std::size_t>(this_machine)] = {
      attention_step<copies::attention, copies::Tiles>,   attention_step<scale::attention, scale::Tiles>,
      attention_step<loops::attention, loops::Tiles>,     attention_step<addresses::attention, addresses::Tiles>,
      attention_step<output::attention, output::Tiles>,   attention_step<more_rows::attention, more_rows::Tiles>,
      attention_step<rescale::attention, rescale::Tiles>, attention_step<maximum::attention, maximum::Tiles>,
      attention_step<beside::attention, beside::Tiles>,
  };
  return true;
}();

}  // namespace
}  // namespace flash::phase13::inline FLASH_MACHINE
