// phase_06_test.cpp: proof of phase 06, all heads in one grid: all that phases and kernels promise (promises.hpp), the
// bits of phase 05 among it, its counters, strides of 0, other grids.
// ./flash test 06
#include <doctest/doctest.h>

#include "phases/05-first-kernel/phase.hpp"
#include "phases/06-4d-grid/phase.hpp"
#include "tests/row_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase06::phase;
}

TEST_CASE_TEMPLATE("counters equal formulas", T, float, half, bfloat16) {
  check_row_kernel<T>();
}

// All heads in one launch: as many blocks as phase 05 had in all its launches.
TEST_CASE("one launch for all heads") {
  Inputs<float> in({.B = 2, .H = 3, .Sq = 100, .Sk = 20, .D = 16, .block_q = 64, .block_k = 32});
  const Run r = phase06::forward(in.problem(false));
  REQUIRE(r.kernels.size() == 1);
  CHECK(r.kernels[0].grid == std::array<unsigned, 3>{2, 6, 1});
}

// K and V have strides of their own: zeros, so that all heads and batches share one K, and V is Q's neighbour.
TEST_CASE_TEMPLATE("heads that share K and V by a stride of 0", T, float, half, bfloat16) {
  const Case c{.B = 2, .H = 3, .Sq = 33, .Sk = 50, .D = 24, .block_q = 16, .block_k = 16};
  Inputs<T> shared(c), copied(c);
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t h = 0; h < c.H; ++h)
      for (std::int64_t s = 0; s < c.Sk; ++s) {
        std::copy_n(copied.k.view.row(0, 0, s), c.D, copied.k.view.row(b, h, s));
        std::copy_n(copied.v.view.row(b, 0, s), c.D, copied.v.view.row(b, h, s));
      }
  Problem<T> p = shared.problem(false);
  p.k.stride[0] = p.k.stride[1] = 0;
  p.v.stride[1] = 0;
  phase06::forward(p);
  phase06::forward(copied.problem(false));
  CHECK(same_bits(shared.o.memory, copied.o.memory));
}

// ---- Other grids ----

TEST_CASE("three grids: the same bits, the same bytes, another number and order of blocks") {
  if (skipped_without(Where::Checked)) return;
  using phase06::Grid;
  const Case c{.B = 2, .H = 3, .Sq = 100, .Sk = 150, .D = 24, .block_q = 64, .block_k = 32, .layout = Layout::Mixed};
  Inputs<float> two(c);
  const Run base = phase06::forward(two.problem(false), Where::Checked);
  for (const auto& [shape, grid] : {std::pair{Grid::One, std::array<unsigned, 3>{2, 1, 1}},
                                    {Grid::Two, std::array<unsigned, 3>{2, 6, 1}},
                                    {Grid::Three, std::array<unsigned, 3>{2, 3, 2}}}) {
    Inputs<float> in(c);
    const Run r = phase06::forward_variant(in.problem(false), shape, Where::Checked);
    CHECK(r.kernels[0].grid == grid);
    CHECK(same_bits(in.o.memory, two.o.memory));
    CHECK(r.ledger == base.ledger);
  }
}

TEST_CASE("three grids: K and V in flight") {
  using phase06::Grid;
  using phase06::heads_in_flight;
  // B = 4, H = 32, 2048 rows in tiles of 64; an H100 runs 132 blocks at a time, one on each multiprocessor.
  CHECK(heads_in_flight(Grid::One, 4, 32, 32, 132).size() == 1);  // but there are 32 blocks for 132 places
  CHECK(heads_in_flight(Grid::Two, 4, 32, 32, 132).size() == 5);
  CHECK(heads_in_flight(Grid::Three, 4, 32, 32, 132).size() == 128);  // all of them: 25 times the working set
  // Which: two Q tiles of a head side by side, or the same head of each batch entry, then the next head.
  CHECK(heads_in_flight(Grid::One, 4, 32, 2, 5) == std::set<std::int64_t>{0});
  CHECK(heads_in_flight(Grid::Two, 4, 32, 2, 5) == std::set<std::int64_t>{0, 1, 2});
  CHECK(heads_in_flight(Grid::Three, 4, 32, 2, 5) == std::set<std::int64_t>{0, 32, 64, 96, 1});
}

TEST_CASE("a grid of (batch, head, Q tile) ends at 65,535 heads") {
  Inputs<float> in({.B = 1, .H = 65536, .Sq = 1, .Sk = 1, .D = 1, .block_q = 16, .block_k = 16});
  CHECK_NOTHROW(phase06::forward(in.problem(false)));
  CHECK_THROWS_WITH_AS(phase06::forward_variant(in.problem(false), phase06::Grid::Three),
                       "grid.y is 65536; expected 1 to 65535; put the long axis on grid.x", Error);
}

TEST_CASE("other grids without rows or keys") {
  for (const phase06::Grid grid : {phase06::Grid::One, phase06::Grid::Two, phase06::Grid::Three}) {
    Inputs<float> no_rows({.Sq = 0, .Sk = 20}), no_keys({.Sq = 20, .Sk = 0});
    CHECK(phase06::forward_variant(no_rows.problem(false), grid).kernels.empty());
    phase06::forward_variant(no_keys.problem(false), grid);
    for (const double x : gather(no_keys.o.view)) CHECK(x == 0);
  }
}
