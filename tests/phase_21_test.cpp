// phase_21_test.cpp: proof of phase 21, the backward pass on wgmma: all that backward passes promise
// (backward_promises.hpp), whenever copies and products are done, and the gradients of phase 20.
// ctest --test-dir build -L phase21        the figures: phase21_test -s
#include <doctest/doctest.h>

#include "phases/21-backward-wgmma/steps/steps.hpp"
#include "tests/backward_neighbours.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase21::phase;
}

TEST_CASE_TEMPLATE("gradients are those of phase 20", T, half, bfloat16) {
  check_same_as_before<T>();
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half) {
  check_backward_completions<T>({{300, 140}, {20, 150}}, {128, 128});
}

// Its dQ is the same but for the order of additions; it makes four requests where phase 21 makes one.
TEST_CASE("checked: clean, the step too, which adds number by number") {
  if (skipped_without(Where::Checked)) return;
  const Case c{.B = 1, .H = 2, .Sq = 150, .Sk = 300, .D = 128, .mask = Mask::bottom_right()};
  GradientInputs<bfloat16> in(c);
  run_training(in, Where::Sim);
  const GradientProblem<bfloat16> p = in.problem(true);
  std::vector<std::vector<double>> dq;
  std::vector<std::uint64_t> requests;
  for (const Phase* phase : {&phase21::phase, &phase21::scalar_step}) {
    Run run = flash::backward(*phase, p, Where::Checked, {}, BackwardMode::Atomic);
    expect_none(examine_gradients(in, true));
    dq.push_back(gather64(p.dq));
    requests.push_back(run.ledger.array("dQ_sum").write_requests);
  }
  CHECK(largest_difference(dq[0], dq[1]) <= 0x1p-8);
  // Each clears 256 rows of two heads with two requests for 32 lanes' 8 numbers each.
  const std::uint64_t cleared = 2 * 256 * 128 / (32 * 8) * 2;
  CHECK(requests[1] - cleared == 4 * (requests[0] - cleared));
}
