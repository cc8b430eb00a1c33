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

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half) {
  check_backward_completions<T>({{300, 140}, {20, 150}}, {128, 128});
  check_backward_completions<T>({{180, 140}, {20, 150}}, {64, 128}, 200);
}
