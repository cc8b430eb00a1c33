// phase_08_test.cpp: proof of phase 08, LSE: all that phases and kernels promise (promises.hpp), the bits of phase 07
// among it, its counters, converters, and partial results merged by LSE.
// ./flash test 08
#include <doctest/doctest.h>

#include "phases/07-causal/phase.hpp"
#include "phases/08-lse/lse.hpp"
#include "phases/08-lse/phase.hpp"
#include "tests/row_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase08::phase;
}

TEST_CASE_TEMPLATE("counters equal formulas", T, float, half, bfloat16) {
  check_row_kernel<T>();
}

TEST_CASE("natural logarithm, with a converter to base 2") {
  // Four equal logits of 0: LSE = ln 4, 2 in base 2.
  Inputs<float> in({.B = 1, .H = 1, .Sq = 1, .Sk = 4, .D = 8, .scale = 0.0f});
  phase08::forward(in.problem(true));
  const float lse = in.lse[guard];
  CHECK(lse == doctest::Approx(std::log(4.0)).epsilon(1e-6));
  CHECK(phase08::lse_to_base2(lse) == doctest::Approx(2.0).epsilon(1e-6));
  CHECK(phase08::lse_from_base2(2.0f) == doctest::Approx(std::log(4.0)).epsilon(1e-6));
  CHECK(phase08::lse_to_base2(-infinity) == -infinity);
}

// K and V cut anywhere, each part computed on its own, put together with phase 02's rule. Not with logits near -2e6:
// LSE is one fp32 number there with steps of 0.125, and the parts' weights are no better than that.
TEST_CASE_TEMPLATE("two parts of K merged by LSE equal the whole", T, float, half, bfloat16) {
  for (const std::int64_t cut : {0, 1, 50, 64, 100})
    for (const Input input : {Input::Normal, Input::Rising, Input::Q60, Input::Shifted}) {
      const Case c{.Sq = 37, .Sk = 100, .D = 24, .input = input};
      INFO(text(c) << ", cut at " << cut);
      Inputs<T> whole(c), left(c), right(c);
      const Problem<T> p = whole.problem(true);
      phase08::forward(p);
      Problem<T> a = left.problem(true), b = right.problem(true);
      a.k.shape[2] = a.v.shape[2] = cut;
      b.k.shape[2] = b.v.shape[2] = c.Sk - cut;
      b.k.data = b.k.row(0, 0, cut);
      b.v.data = b.v.row(0, 0, cut);
      phase08::forward(a);
      phase08::forward(b);

      std::vector<double> merged, lse;
      for (std::int64_t row = 0; row < c.B * c.H * c.Sq; ++row) {
        const std::int64_t n = row / c.Sq / c.H, h = row / c.Sq % c.H, s = row % c.Sq;
        const phase02::State state = phase02::merge(phase08::partial(a.o.row(n, h, s), c.D, a.lse[row]),
                                                    phase08::partial(b.o.row(n, h, s), c.D, b.lse[row]));
        const Eigen::VectorXf o = state.output();
        for (std::int64_t d = 0; d < c.D; ++d) merged.push_back(o[d]);
        CHECK(std::abs(state.lse() - p.lse[row]) <= 2 * lse_bar(p.lse[row]));
      }
      // Two roundings to T where the whole has one.
      CHECK(distance(merged, reference(p).o, c.D).relative <= 2 * bars<T>(c, reference(p)).relative);
    }
}
