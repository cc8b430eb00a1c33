// phase_15_test.cpp: proof of phase 15: all that phases and kernels promise (promises.hpp).
// ./flash test 15
#include <doctest/doctest.h>

#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/15-warp-specialised/phase.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase15::phase;
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}
