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

TEST_CASE_TEMPLATE("copies may arrive at any time", T, half, bfloat16) {
  check_completions<T>();
}
