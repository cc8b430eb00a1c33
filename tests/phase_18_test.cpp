// phase_18_test.cpp: proof of phase 18: all that phases and kernels promise (promises.hpp); and of the kernels of its
// staircase (steps/).
// ./flash test 18
#include <doctest/doctest.h>

#include <cmath>
#include <list>

#include "phases/17-persistent/phase.hpp"
#include "phases/18-diet/steps/steps.hpp"
#include "tests/steps.hpp"
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

// ---- The staircase --------------------------------------------------------------------------------------------------

TEST_CASE("sim: the steps compute attention") {
  check_steps(phase18::steps, Where::Sim);
}
TEST_CASE("gpu: the steps compute attention") {
  check_steps(phase18::steps, Where::Gpu);
}
TEST_CASE("checked: clean, the steps too") {
  check_steps_clean(phase18::steps);
}

// From phase 17 by the steps to 18, two blocks and three Q tiles. Where a step has a counter, it is the formula's.
TEST_CASE("from step to step: the same bits, and the counters that the step is about") {
  const Where where = was_built(Where::Checked) ? Where::Checked : Where::Sim;
  std::vector<const Phase*> kernels(phase18::steps.begin(), phase18::steps.end());
  kernels.insert(kernels.begin(), &phase17::phase), kernels.push_back(&phase18::phase);
  for (const Mask mask : {Mask::none(), Mask::top_left()}) {
    const std::uint64_t D = 128, Bc = 128, q_tiles = 3, pairs = mask == Mask::none() ? 9 : 6, warps = 8;
    const Case c{.B = 1, .H = 1, .Sq = 300, .Sk = 300, .D = 128, .mask = mask, .block_q = 128, .block_k = 128};
    std::list<Outcome> outcomes;
    for (const Phase* kernel : kernels) {
      CAPTURE(std::string(kernel->name));
      CAPTURE(mask == Mask::none());
      const Outcome* const before = outcomes.empty() ? nullptr : &outcomes.back();
      const Outcome& now = outcomes.emplace_back(*kernel, c, where);
      const Ledger& l = now.run.ledger;
      if (before) {
        // With a mask the largest score that a row sees may be negative: then P is rounded in another way.
        if (kernel != &phase18::maximum_step || mask == Mask::none()) CHECK(before->same(now));
        Ledger want = before->run.ledger;
        if (where == Where::Checked && kernel == &phase18::registers_step) {
          CHECK(want.wgmma_shared_bytes == pairs * 2 * (64 * D + 2 * Bc * D) * 2);
          CHECK(l.wgmma_shared_bytes == pairs * 2 * (2 * Bc * D) * 2);
          CHECK(l.shared_read_requests == want.shared_read_requests + q_tiles * warps * D / 16);  // ldmatrix
          want.wgmma_shared_bytes = l.wgmma_shared_bytes, want.shared_read_requests = l.shared_read_requests;
          want.shared_wavefronts += 4 * q_tiles * warps * D / 16;
          want.shared_wavefronts_ideal += 4 * q_tiles * warps * D / 16;
        }
        if (kernel == &phase18::stages_step) want.shared_bytes_peak += Bc * D * 2;
        if (kernel != &phase18::maximum_step || mask == Mask::none()) CHECK(l == want);
      }
    }
  }
}
