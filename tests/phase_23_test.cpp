// phase_23_test.cpp: proof of phase 23, the backward pass in turns: all that backward passes promise
// (backward_promises.hpp), whenever copies and products are done, and the gradients of phase 22.
// ctest --test-dir build -L phase23        the figures: phase23_test -s
#include <doctest/doctest.h>

#include "phases/23-backward-turns/phase.hpp"
#include "tests/backward_neighbours.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase23::phase;
}

TEST_CASE_TEMPLATE("gradients are those of phase 22", T, half, bfloat16) {
  check_same_as_before<T>();
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half) {
  check_backward_completions<T>({{300, 140}, {20, 150}}, {128, 128});
}
