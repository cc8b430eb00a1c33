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

// Each is within its bar of fp64; this is phase 09's dQ, dK and dV from the same O, m and l, within the sum of both.
TEST_CASE_TEMPLATE("gradients are those of phase 09", T, half, bfloat16) {
  const double bar = std::is_same_v<T, half> ? 4 * 0x1p-12 : 4 * 0x1p-9;
  for (const int D : {64, 128, 256})
    for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
      const Case c{.B = 1, .H = 2, .Sq = 150, .Sk = 130, .D = D, .mask = Mask::bottom_right()};
      INFO(text(c) << " " << std::string(name(mode)));
      GradientInputs<T> in(c);
      run_both(in, Where::Sim, mode, true);
      std::vector<std::vector<double>> ours, theirs;
      for (const View<T>& x : {in.dq.view, in.dk.view, in.dv.view}) ours.push_back(gather64(x));
      GradientProblem<T> p = in.problem(true);
      phase09::backward(p, Where::Sim);
      for (const View<T>& x : {in.dq.view, in.dk.view, in.dv.view}) theirs.push_back(gather64(x));
      for (std::size_t which = 0; which < 3; ++which) {
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < ours[which].size(); ++i) {
          difference += std::pow(ours[which][i] - theirs[which][i], 2);
          size += std::pow(theirs[which][i], 2);
        }
        CHECK(std::sqrt(difference) <= bar * std::sqrt(size));
      }
    }
}

// The same bits, and no finding, whenever cp.async completes and in whatever order threads run; K/V tiles that no row
// sees, too.
TEST_CASE_TEMPLATE("copies may arrive at any time", T, half, bfloat16) {
  if (skipped_without(Where::Checked)) return;
  for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{110, 140}, {20, 150}}) {
    const Case c{.B = 1, .H = 1, .Sq = Sq, .Sk = Sk, .D = 64, .mask = Mask::top_left(), .block_q = 32, .block_k = 64};
    GradientInputs<T> first(c);
    run_both(first, Where::Sim);
    for (const Completion completion : {Completion::eager, Completion::late, Completion::random})
      for (const Order order : {Order::forward, Order::reverse, Order::random})
        for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
          GradientInputs<T> again(c);
          REQUIRE_NOTHROW(
              run_both(again, Where::Checked, mode, false, {.order = order, .seed = 3, .completion = completion}));
          CHECK(same_bits(first.dk.memory, again.dk.memory));
          CHECK(same_bits(first.dv.memory, again.dv.memory));
          if (mode == Mode::Deterministic) CHECK(same_bits(first.dq.memory, again.dq.memory));
        }
  }
}
