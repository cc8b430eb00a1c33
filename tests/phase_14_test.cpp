// phase_14_test.cpp: proof of phase 14: all that phases and kernels promise (promises.hpp).
// ./flash test 14
#include <doctest/doctest.h>

#include "phases/13-instruction-diet/phase.hpp"
#include "phases/14-tma-wgmma/phase.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase14::phase;
}
const Phase* flash::test::phase_before() {
  return &phase13::phase;
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}
