// phase_18_test.cpp: proof of phase 18: all that phases and kernels promise (promises.hpp).
// ./flash test 18
#include <doctest/doctest.h>

#include <cmath>

#include "phases/17-persistent/phase.hpp"
#include "phases/18-diet/phase.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase18::phase;
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}

// The largest of such floats is the smallest integer: P relative to another one would overflow. (In a first tile m is
// -inf, which wins as an integer and is extreme anyway.)
TEST_CASE_TEMPLATE("scores below zero, and far apart", T, half, bfloat16) {
  const Case c{.B = 1, .H = 1, .Sq = 3, .Sk = 256, .D = 64};
  Inputs<T> in(c);
  const auto first_column = [&](std::uint64_t i) { return static_cast<std::int64_t>(i) % c.D == 0; };
  in.q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return first_column(i) ? 8.0f : 0.0f; });  // 1/scale
  in.k.fill(c.Sk, [&](std::uint64_t i, std::int64_t j) {
    return first_column(i) ? -5.0f - static_cast<float>(37 * j % 128) : 0.0f;
  });
  const Problem<T> p = in.problem(true);
  flash::forward(phase_under_test(), p, Where::Sim);
  const Reference want = reference(p);
  CHECK(distance(gather(in.o.view), want.o, c.D).relative <= bars<T>(c, want).relative);
  for (std::size_t i = 0; i < want.lse.size(); ++i) CHECK(std::abs(p.lse[i] - want.lse[i]) <= lse_bar(want.lse[i]));
}
