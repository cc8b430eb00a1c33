// phase_17_test.cpp: proof of phase 17: all that phases and kernels promise (promises.hpp).
// ./flash test 17
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "phases/16-overlap/phase.hpp"
#include "phases/17-persistent/phase.hpp"
#include "phases/17-persistent/steps/steps.hpp"
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
