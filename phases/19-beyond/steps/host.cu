// host.cu: the host's side of the staircase: each step as phases are run, for one size; and what the designs take, for
// the pages. Compiled once per machine.
// Use: steps.hpp declares what is here.
#include "phases/19-beyond/attention.cuh"
#include "phases/19-beyond/steps/1-shared.cuh"
#include "phases/19-beyond/steps/2-design.cuh"
#include "phases/19-beyond/steps/3-pass.cuh"
#include "phases/19-beyond/steps/4-order.cuh"
#include "phases/19-beyond/steps/5-early.cuh"
#include "phases/19-beyond/steps/6-wide.cuh"
#include "phases/19-beyond/steps/7-exchange.cuh"
#include "phases/19-beyond/steps/steps.hpp"

namespace flash::phase19::inline FLASH_MACHINE {

static const Added added[] = {
    added_pass<two_consumers, shared_q::Attention>(shared_pass),
    added_pass<four_consumers, design::Attention>(design_pass),
    added_pass<four_consumers, pass::Attention>(pass_pass),
    added_pass<four_consumers, order::Attention>(order_pass),
    added_pass<four_consumers, early::Attention>(early_pass),
    added_pass<wide_rows, wide::Attention>(wide_pass),
    added_pass<wide_rows, exchange::Attention>(exchange_pass),
};

template <int D, int Br, int Bc>
Budget of_18() {
  Budget it{D, Br, Bc};
  it.registers = phase18::kConsumerRegisters, it.producer_registers = phase18::kProducerRegisters;
  it.k_stages = phase18::kStagesOfK, it.v_stages = phase18::kStagesOfV, it.q_in_registers = true;
  it.shared_bytes = sizeof(phase18::Tiles<D, Br, Bc>);
  return it;
}
template <int D, int Br, int Bc>
Budget of_19() {
  using L = Design<D, Br, Bc>;
  Budget it{D, Br, Bc, L::consumers, L::consumer_registers, L::producer_registers};
  it.q_places = L::q_buffers, it.k_stages = L::k_stages, it.v_stages = L::v_stages, it.staged = L::staged;
  it.shared_bytes = sizeof(Tiles<D, Br, Bc>);
  return it;
}
static const bool told = [] {
  designs = {of_19<64, 256, 64>(), of_19<64, 192, 128>(), of_18<128, 128, 128>(), of_19<256, 128, 64>(),
             of_19<256, 128, 80>()};
  design_of_18 = of_18<64, 128, 128>();
  return true;
}();

}  // namespace flash::phase19::inline FLASH_MACHINE
