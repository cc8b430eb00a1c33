// phase_17_test.cpp: proof of phase 17: all that phases and kernels promise (promises.hpp); and of the kernels of its
// staircase (steps/).
// ./flash test 17
#include <doctest/doctest.h>

#include <algorithm>
#include <list>
#include <vector>

#include "phases/16-overlap/phase.hpp"
#include "phases/17-persistent/phase.hpp"
#include "phases/17-persistent/steps/steps.hpp"
#include "tests/steps.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase17::phase;
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}

TEST_CASE("each Q tile is drawn once, those of a narrower last section too, and the longest of a section first") {
  constexpr unsigned kHeads = 5, kTiles = 3, kBlocks = 2;
  for (const unsigned section : {0u, 1u, 2u, 3u, 5u}) {
    INFO("section: " << section);
    std::vector<int> want;  // head · kTiles + q_tile
    for (unsigned first = 0; first < kHeads; first += std::max(section, 1u)) {
      const unsigned end = std::min(first + std::max(section, 1u), kHeads);
      for (unsigned rank = 0; rank < kTiles; ++rank)
        for (unsigned head = first; head < end; ++head)
          want.push_back(static_cast<int>(head * kTiles + (section ? kTiles - 1 - rank : rank)));
    }
    const phase17::Drawn drawn = phase17::asked_on(Where::Sim).draw(kHeads, kTiles, section, kBlocks);
    CHECK(drawn.order == want);
    CHECK(drawn.times == std::vector<unsigned>(kHeads * kTiles, 1));
    CHECK(drawn.counter == 0);
  }
}

// ---- The staircase --------------------------------------------------------------------------------------------------

TEST_CASE("sim: the steps compute attention") {
  check_steps(phase17::steps, Where::Sim);
}
TEST_CASE("gpu: the steps compute attention") {
  check_steps(phase17::steps, Where::Gpu);
}
TEST_CASE("checked: clean, the steps too") {
  check_steps_clean(phase17::steps);
}

// From phase 16 by the steps to 17: three Q tiles, of which the first sees no key where 300 rows meet 150 keys.
TEST_CASE("from step to step: the same bits, and the counters that the step is about") {
  const Where where = was_built(Where::Checked) ? Where::Checked : Where::Sim;
  std::vector<const Phase*> kernels(phase17::steps.begin(), phase17::steps.end());
  kernels.insert(kernels.begin(), &phase16::phase), kernels.push_back(&phase17::phase);
  for (const std::int64_t Sk : {300, 150}) {
    const Mask mask = Sk == 300 ? Mask::none() : Mask::bottom_right();
    const std::int64_t D = 128, Sq = 300, tile = 128 * D * 2, q_tiles = 3, unseen = Sk == 300 ? 0 : 1;
    const Case c{.B = 1, .H = 1, .Sq = Sq, .Sk = Sk, .D = D, .mask = mask, .block_q = 128, .block_k = 128};
    std::list<Outcome> outcomes;
    for (const Phase* kernel : kernels) {
      CAPTURE(std::string(kernel->name));
      CAPTURE(Sk);
      const Outcome* const before = outcomes.empty() ? nullptr : &outcomes.back();
      const Outcome& now = outcomes.emplace_back(*kernel, c, where);
      if (before) CHECK(before->same(now));
      const bool first = kernel == &phase16::phase, last = kernel == &phase17::phase;
      const bool out = !first, all = !first && kernel != &phase17::output_step;
      const bool stays = all && kernel != &phase17::keys_step;
      if (where != Where::Checked) continue;
      CHECK(now.run.kernels[0].grid[0] == (stays ? 2 : q_tiles));  // the simulator has two multiprocessors
      Ledger l = now.run.ledger;
      CHECK(l.array("Q").read_bytes == (all ? Sq : Sq - unseen * 128) * D * 2);
      CHECK(l.array("O").written_bytes == Sq * D * 2);
      // By TMA boxes of 64 x 64 of whole rows; by lanes pairs of elements, of each row that is there.
      CHECK(l.array("O").write_requests == (out ? (Sq + 63) / 64 * (D / 64) : (Sq + 15) / 16 * (D / 4)));
      CHECK(l.shared_bytes_peak == (out ? 6 : 5) * tile + 1024);  // the barriers fill up to the next KiB
      CHECK(l.array("counter").read_bytes == (last ? 4 * q_tiles : 0));
    }
  }
}
