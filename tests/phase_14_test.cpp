// phase_14_test.cpp: proof of phase 14: all that phases and kernels promise (promises.hpp).
// ./flash test 14
#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "phases/13-instruction-diet/phase.hpp"
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase14::phase;
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}

TEST_CASE("checked: clean, the page's kernel too: each element of S has one thread") {
  if (skipped_without(Where::Checked)) return;
  const phase14::Laid laid = phase14::ask_on(Where::Checked)();
  std::array<int, 64 * 64> times{};
  for (const auto& its_own : laid.S)
    for (const int element : its_own) ++times.at(static_cast<std::size_t>(element));
  CHECK(std::count(times.begin(), times.end(), 1) == 64 * 64);
}
