// steps.hpp: the kernels of the staircase from phase 18 to 19, each as a phase of its own that no list names. They are
// compiled for one setting: bf16, and the head dimension and blocks that a step is about. And what the designs take.
// Use: const Run run = forward(*phase19::steps[2], problem, Where::Checked);
#pragma once
#include <array>
#include <cstddef>

#include "phases/19-beyond/phase.hpp"

namespace flash::phase19 {

// What is instantiated of a step: one head dimension, one pair of blocks.
constexpr Features step_of(int D, Blocks blocks) {
  Features one = features;
  one.meets = {Demand::Causal, Demand::Lse};
  one.types = {Type::BFloat16}, one.head_dims = {D}, one.blocks = {blocks}, one.has = all_blocks;
  return one;
}
inline constexpr Features two_consumers = step_of(64, {128, 64}), four_consumers = step_of(64, {256, 64}),
                          wide_rows = step_of(256, {128, 64});

inline constinit Pass shared_pass{two_consumers, &phase18::phase}, design_pass{four_consumers, &phase18::phase},
    pass_pass{four_consumers, &phase18::phase}, order_pass{four_consumers, &phase18::phase},
    early_pass{four_consumers, &phase18::phase}, wide_pass{wide_rows}, exchange_pass{wide_rows};
inline constexpr Phase shared_step{"19-beyond/1-shared", "Q stays in shared memory", &shared_pass};
inline constexpr Phase design_step{"19-beyond/2-design", "a table in place of constants: four consumers at D = 64",
                                   &design_pass};
inline constexpr Phase pass_step{"19-beyond/3-pass", "a warpgroup passes over tiles that only later rows see",
                                 &pass_pass};
inline constexpr Phase order_step{"19-beyond/4-order", "a Q tile's last PV comes before the next one's S", &order_pass};
inline constexpr Phase early_step{"19-beyond/5-early", "PV is waited for ahead of the exponentials", &early_pass};
inline constexpr Phase wide_step{"19-beyond/6-wide", "D = 256: O goes out from registers, Q is prefetched", &wide_pass};
inline constexpr Phase exchange_step{"19-beyond/7-exchange", "four lanes exchange O and store 16 bytes each",
                                     &exchange_pass};
inline constexpr std::array<const Phase*, 7> steps = {&shared_step, &design_step, &pass_step,    &order_step,
                                                      &early_step,  &wide_step,   &exchange_step};

// What the kernels' own constants say of a design: warpgroups, registers of a thread, places, shared memory of a block.
struct Budget {
  int D = 0, Br = 0, Bc = 0, consumers = 2, registers = 0, producer_registers = 0, q_places = 1, k_stages = 0,
      v_stages = 0;
  bool staged = true, q_in_registers = false;  // O goes out through shared memory; Q is a left operand from registers
  std::size_t shared_bytes = 0;
};
// Filled by host.cu, which knows the kernels: phase 19's designs; and phase 18's one at D = 64, where it has a kernel.
inline constinit std::array<Budget, 5> designs{};
inline constinit Budget design_of_18{};

}  // namespace flash::phase19
