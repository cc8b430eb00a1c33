// phase_16_test.cpp: proof of phase 16: all that phases and kernels promise (promises.hpp).
// ./flash test 16
#include <doctest/doctest.h>

#include "phases/15-warp-specialised/phase.hpp"
#include "phases/16-overlap/phase.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase16::phase;
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}
