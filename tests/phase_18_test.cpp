// phase_18_test.cpp: proof of phase 18: all that phases and kernels promise (promises.hpp).
// ./flash test 18
#include <doctest/doctest.h>

#include "phases/17-persistent/phase.hpp"
#include "phases/18-diet/phase.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase18::phase;
}
const Phase* flash::test::phase_before() {
  return &phase17::phase;
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}
