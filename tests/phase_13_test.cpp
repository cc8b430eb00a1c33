// phase_13_test.cpp: proof of phase 13, the instruction diet: all that phases and kernels promise (promises.hpp), and
// its counters from formulas, whenever the copies arrive.
// ./flash test 13
#include <doctest/doctest.h>

#include "phases/12-async-copies/phase.hpp"
#include "phases/13-instruction-diet/phase.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase13::phase;
}
const Phase* flash::test::phase_before() {
  return &phase12::phase;
}

// Bits and counters, whenever the bytes of a copy arrive.
TEST_CASE_TEMPLATE("copies may arrive at any time", T, half, bfloat16) {
  if (skipped_without(Where::Checked)) return;
  const Case c{.Sq = 70, .Sk = 150, .D = 64, .causal = Causal::BottomRight};
  Inputs<T> late(c);
  const Run first = flash::forward(phase13::phase, late.problem(true), Where::Checked);
  for (const Where where : {Where::Sim, Where::Checked})
    for (const Completion completion : {Completion::eager, Completion::random})
      for (const Order order : {Order::forward, Order::random}) {
        Inputs<T> again(c);
        const Run run = flash::forward(phase13::phase, again.problem(true), where,
                                       {.order = order, .seed = 3, .completion = completion});
        CHECK(same_bits(late.o.memory, again.o.memory));
        CHECK(same_bits(late.lse, again.lse));
        if (where == Where::Checked) CHECK(run.ledger == first.ledger);
      }
}
