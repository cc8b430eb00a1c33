// phase_19_test.cpp: proof of phase 19: all that phases and kernels promise (promises.hpp).
// ./flash test 19
#include <doctest/doctest.h>

#include "phases/09-backward/phase.hpp"
#include "phases/18-diet/phase.hpp"
#include "phases/19-beyond/phase.hpp"
#include "tests/tensor_kernels.hpp"
#include "tests/training_gradients.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase19::phase;
}

TEST_CASE_TEMPLATE("gradients of what was kept, by phase 09", T, half, bfloat16) {
  check_training_gradients<T>(phase19::phase, phase09::phase);
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}

// What O's tile has beyond D stays in the registers: of store_rows alone, TMA leaves it out by itself.
TEST_CASE_TEMPLATE("columns beyond D are not stored", T, half, bfloat16) {
  const Case c{.Sq = 70, .Sk = 100, .D = 200, .layout = Layout::Padded, .granule = 8};
  check_forward<T>(c, on<T>(phase_under_test(), Where::Sim), features_under_test());
}
