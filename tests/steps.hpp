// steps.hpp: what is proved of each step on the way from one phase to the next, where a step is a phase of one size.
// Their bits and counters are compared by the phase's own test.
// Use: check_steps(phase18::steps, Where::Sim);  const Outcome late(*phase18::steps[0], c, Where::Checked);
#pragma once
#include "tests/promises.hpp"

namespace flash::test {

// A case of bf16, and what a step makes of it.
struct Outcome {
  Inputs<bfloat16> in;
  Run run;

  Outcome(const Phase& step, const Case& c, Where where, const MachineOptions& options = {})
      : in(c), run(flash::forward(step, in.problem(true), where, options)) {}
  bool same(const Outcome& other) const {
    return same_bits(in.o.memory, other.in.o.memory) && same_bits(in.lse, other.in.lse);
  }
};

// Within the bars of the contract: ragged lengths, rows that see no key, each mask, logits of all sizes and both signs.
template <class Steps>
void check_steps(const Steps& steps, Where where, std::int64_t D = 128) {
  if (skipped_without(where)) return;
  const std::vector<Case> cases{
      {.B = 1, .H = 2, .Sq = 300, .Sk = 300, .mask = Mask::top_left()},
      {.B = 2, .H = 1, .Sq = 130, .Sk = 270, .mask = Mask::bottom_right(), .layout = Layout::Bshd},
      {.B = 1, .H = 1, .Sq = 270, .Sk = 100, .mask = Mask::bottom_right()},
      {.B = 1, .H = 3, .Sq = 129, .Sk = 1, .scale = -0.05f},
      {.B = 1, .H = 1, .Sq = 70, .Sk = 400, .input = Input::Q60, .scale = -0.03f},
      {.B = 1, .H = 1, .Sq = 200, .Sk = 200, .input = Input::LowVaried, .mask = Mask::top_left()},
      {.B = 1, .H = 1, .Sq = 100, .Sk = 300, .input = Input::Shuffled},
  };
  for (const Phase* step : steps)
    for (Case c : cases) {
      CAPTURE(std::string(step->name));
      c.D = D, c.granule = 8, c.twice = false;
      check_forward<bfloat16>(c, on<bfloat16>(*step, where), step->forward->features);
    }
}

// Clean, and the same bits and counters whenever copies and products are done.
template <class Steps>
void check_steps_clean(const Steps& steps, std::int64_t D = 128) {
  if (skipped_without(Where::Checked)) return;
  for (const Phase* step : steps)
    for (const Mask mask : {Mask::none(), Mask::bottom_right()}) {
      CAPTURE(std::string(step->name));
      const Case c{.B = 1, .H = 2, .Sq = 200, .Sk = 170, .D = D, .mask = mask};
      const Outcome late(*step, c, Where::Checked);
      for (const auto& [order, completion] :
           {std::pair{Order::reverse, Completion::eager}, {Order::random, Completion::random}}) {
        const Outcome again(*step, c, Where::Checked, {.order = order, .seed = 7, .completion = completion});
        CHECK(late.same(again));
        CHECK(late.run.ledger == again.run.ledger);
      }
    }
}

}  // namespace flash::test
