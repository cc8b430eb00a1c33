// phase_24_test.cpp: proof of phase 24, the backward pass fused: all that backward passes promise
// (backward_promises.hpp), whenever copies and products are done, and the gradients of phase 23.
// ctest --test-dir build -L phase24        the figures: phase24_test -s
#include <doctest/doctest.h>

#include "phases/24-backward-fused/phase.hpp"
#include "tests/backward_neighbours.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase24::phase;
}

TEST_CASE_TEMPLATE("gradients are those of phase 23", T, half, bfloat16) {
  check_same_as_before<T>();
}

// A head's blocks know from one number whether any of its rows is extreme. Here row 330 is, and the mean of the keys
// does not matter: half of the keys have logits of some 8,000, the others as many below 0. dO is 1 in that row alone,
// so each column of dV adds up to the row's probabilities: to 1.
TEST_CASE_TEMPLATE("a row with huge logits behind 330 others", T, half, bfloat16) {
  for (const std::int64_t D : {64, 128}) {
    INFO("D = " << D);
    const Case c = within({.B = 1, .H = 1, .Sq = 400, .Sk = 130, .D = D});
    GradientInputs<T> in(c);
    const std::int64_t extreme = 330;
    for (std::int64_t i = 0; i < c.Sq; ++i) {
      in.in.q.view.row(0, 0, i)[0] = from_float<T>(i == extreme ? 64.0f : 0.0f);
      for (std::int64_t d = 0; d < D; ++d) in.dout.view.row(0, 0, i)[d] = from_float<T>(i == extreme ? 1.0f : 0.0f);
    }
    for (std::int64_t j = 0; j < c.Sk; ++j)  // in pairs: every other key cancels, too
      in.in.k.view.row(0, 0, j)[0] = from_float<T>(j / 2 % 2 ? -1024.0f : 1024.0f);
    run_both(in, Where::Sim);
    for (std::int64_t d = 0; d < D; ++d) {
      double sum = 0;
      for (std::int64_t j = 0; j < c.Sk; ++j) sum += to_float(in.dv.view.row(0, 0, j)[d]);
      CHECK(std::abs(sum - 1) <= 0x1p-7);
    }
  }
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half) {
  check_backward_completions<T>({{300, 140}, {20, 150}}, {128, 128});
  check_backward_completions<T>({{180, 140}, {20, 150}}, {64, 128}, 200);
}
