// phase_20_test.cpp: proof of phase 20, the backward pass on tensor cores: all that backward passes promise
// (backward_promises.hpp), whenever the copies arrive, and the gradients of phase 09.
// ctest --test-dir build -L phase20        the figures: phase20_test -s
#include <doctest/doctest.h>

#include "phases/20-backward-tensor-cores/phase.hpp"
#include "tests/backward_promises.hpp"

using namespace flash;
using namespace flash::test;
using phase20::Mode;

const Phase& flash::test::phase_under_test() {
  return phase20::phase;
}

TEST_CASE("quick") {
  for (const auto& [D, Br, Bc] : {std::array<std::int64_t, 3>{64, 32, 64}, {128, 64, 128}, {64, 128, 128}, {64,64,128}, {256,64,64}, {256,32,64}, {128,32,64}})
    for (Mode mode : {Mode::Deterministic, Mode::Atomic}) for (Mask mask : {Mask::none(), Mask::bottom_right()}) {
      GradientInputs<bfloat16> in({.B = 1, .H = 1, .Sq = 70, .Sk = 141, .D = D - 3, .mask = mask, .block_q = Br, .block_k = Bc});
      INFO(D << " " << Br << " " << Bc << " " << int(mode));
      run_both(in, Where::Checked, mode, true);
      Worst worst;
      expect_none(examine_gradients(in, true, &worst));
      MESSAGE(worst.line());
    }
}
