// phase_22_test.cpp: proof of phase 22, the backward pass with roles: all that backward passes promise
// (backward_promises.hpp), whenever copies and products are done, and the gradients of phase 21.
// ctest --test-dir build -L phase22        the figures: phase22_test -s
#include <doctest/doctest.h>

#include "phases/22-backward-roles/phase.hpp"
#include "tests/backward_neighbours.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase22::phase;
}

TEST_CASE_TEMPLATE("gradients are those of phase 21", T, half, bfloat16) {
  check_same_as_before<T>();
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half) {
  check_backward_completions<T>({{300, 140}, {20, 150}}, {128, 128});
}
