// phase_20_test.cpp: proof of phase 20, the backward pass on tensor cores: all that backward passes promise
// (backward_promises.hpp), whenever the copies arrive, and the gradients of phase 09.
// ctest --test-dir build -L phase20        the figures: phase20_test -s
#include <doctest/doctest.h>

#include "phases/20-backward-tensor-cores/phase.hpp"
#include "tests/backward_neighbours.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase20::phase;
}

TEST_CASE_TEMPLATE("gradients are those of phase 09", T, half, bfloat16) {
  check_same_as_before<T>();
}

// Whenever cp.async completes.
TEST_CASE_TEMPLATE("copies may arrive at any time", T, half, bfloat16) {
  check_backward_completions<T>({{110, 140}, {20, 150}}, {32, 64});
}
