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
