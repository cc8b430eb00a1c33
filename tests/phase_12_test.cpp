// phase_12_test.cpp: proof of phase 12, asynchronous copies: all that phases and kernels promise (promises.hpp), and
// its counters from formulas, whenever the copies arrive.
// ./flash test 12
#include <doctest/doctest.h>

#include "phases/11-swizzle/phase.hpp"
#include "phases/12-async-copies/phase.hpp"
#include "phases/12-async-copies/steps/steps.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase12::phase;
}

// Q's fragments are loaded once, and no longer with each tile; one barrier per tile.
TEST_CASE_TEMPLATE("counters equal formulas", T, half, bfloat16) {
  check_tensor_kernel<T>(
      [](std::int64_t D) {
        const std::int64_t k = 4 * 4 * D / 16, v = 4 * 4 * D / 16;  // requests of the 4 warps
        return SharedLoads{k + v, 4 * (k + v), 4 * D / 16};
      },
      true);
}

TEST_CASE_TEMPLATE("copies may arrive at any time", T, half, bfloat16) {
  check_completions<T>();
}

// The page's loop: four threads read what others have copied.
TEST_CASE("checked: clean, the page's sum too, with two stages and three") {
  if (skipped_without(Where::Checked)) return;
  std::vector<float> x(5 * 512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 512 + i / 512);
  for (const phase12::AddTiles add : {phase12::stages_on(Where::Checked).two, phase12::stages_on(Where::Checked).three})
    for (const Completion completion : {Completion::late, Completion::eager, Completion::random}) {
      const phase12::Sum sum = add({.order = Order::random, .seed = 12, .completion = completion}, x);
      for (std::size_t i = 0; i < 512; ++i) REQUIRE(sum.y[i] == 5 * static_cast<float>(511 - i) + 10);
    }
}
