// backward_neighbours.hpp: what the backward passes on tensor cores are tried on beside what all backward passes
// promise (backward_promises.hpp): against the phase before, and whatever is asynchronous done at any time.
// Use: TEST_CASE_TEMPLATE("gradients are those of phase 20", T, half, bfloat16) { check_same_as_before<T>(); }
#pragma once
#include <doctest/doctest.h>

#include "tests/backward_promises.hpp"

namespace flash::test {

// Each is within its bar of fp64; this is dQ, dK and dV of the last phase before that has the head dimension from the
// same O, m and l, within the sum of both. Each head dimension, each mode.
template <class T>
void check_same_as_before() {
  const double bar = std::is_same_v<T, half> ? 4 * 0x1p-12 : 4 * 0x1p-9;
  for (const int D : backward_under_test().head_dims) {
    const Phase* before = phase_under_test().backward->before;
    while (before->backward->features.largest_D() < D) before = before->backward->before;
    for (const BackwardMode mode : modes()) {
      const Case c = within({.B = 1, .H = 2, .Sq = 150, .Sk = 130, .D = D, .mask = Mask::bottom_right()});
      INFO(text(c) << " " << std::string(name(mode)));
      GradientInputs<T> in(c);
      run_both(in, Where::Sim, mode, true);
      std::vector<std::vector<double>> ours, theirs;
      for (const View<T>& x : {in.dq.view, in.dk.view, in.dv.view}) ours.push_back(gather64(x));
      const GradientProblem<T> p = in.problem(true);
      flash::backward(*before, p, Where::Sim);
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
}

// The same bits, and no finding, whenever copies and products complete and in whatever order threads run: each with
// each for the first of the lengths, each once for others (K/V tiles that no row sees). Modes go round, and keys around
// 0 and around 2: only there kernels add up the rows of dS, since dQ is counted from the keys' mean.
template <class T>
void check_backward_completions(const std::vector<std::pair<std::int64_t, std::int64_t>>& lengths, Blocks blocks,
                                std::int64_t D = 64) {
  if (skipped_without(Where::Checked)) return;
  std::size_t number = 0;
  for (const auto& [Sq, Sk] : lengths) {
    const bool first_lengths = number == 0;
    const Case c = within({.B = 1,
                           .H = 1,
                           .Sq = Sq,
                           .Sk = Sk,
                           .D = D,
                           .mask = Mask::top_left(),
                           .block_q = blocks.Br,
                           .block_k = blocks.Bc});
    const auto move_keys = [&](GradientInputs<T>& g) {
      for (std::int64_t key = 0; key < Sk; ++key)
        for (std::int64_t d = 0; d < D; ++d) {
          T& x = g.in.k.view.row(0, 0, key)[d];
          x = from_float<T>(to_float(x) + 2);
        }
    };
    GradientInputs<T> around_0(c), around_2(c);
    move_keys(around_2);
    run_both(around_0, Where::Sim), run_both(around_2, Where::Sim);
    for (const Completion completion : {Completion::eager, Completion::late, Completion::random})
      for (const Order order : {Order::forward, Order::reverse, Order::random}) {
        if (!first_lengths && static_cast<int>(order) != static_cast<int>(completion)) continue;
        const BackwardMode mode = modes()[number % modes().size()];
        const bool moved = number++ / modes().size() % 2 == 1;
        GradientInputs<T> again(c), &first = moved ? around_2 : around_0;
        if (moved) move_keys(again);
        run_training(again, Where::Sim);
        REQUIRE_NOTHROW(
            run_backward(again.problem(), Where::Checked, mode, {.order = order, .seed = 3, .completion = completion}));
        CHECK(same_bits(first.dk.memory, again.dk.memory));
        CHECK(same_bits(first.dv.memory, again.dv.memory));
        if (mode == BackwardMode::Deterministic) CHECK(same_bits(first.dq.memory, again.dq.memory));
      }
  }
}

}  // namespace flash::test
