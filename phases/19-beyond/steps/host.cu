// host.cu: the host's side of the staircase: each step as phases are run, for one size. Compiled once per machine.
// Use: steps.hpp declares what is here.
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

}  // namespace flash::phase19::inline FLASH_MACHINE
