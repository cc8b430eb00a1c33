// phase_07_test.cpp: proof of phase 07, causal masks: all that phases and kernels promise (promises.hpp), the bits of
// phase 06 without a mask among it, its counters, and the tiles of known squares.
// ./flash test 07
#include <doctest/doctest.h>

#include "phases/04-tiled-v2/phase.hpp"
#include "phases/06-4d-grid/phase.hpp"
#include "phases/07-causal/phase.hpp"
#include "tests/row_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase07::phase;
}

TEST_CASE_TEMPLATE("counters equal formulas", T, float, half, bfloat16) {
  check_row_kernel<T>();
}

// More keys than rows in a tile, no common factor between tile and diagonal: stepping by Bc up to a multiple of Br
// would run past the diagonal without a mask.
TEST_CASE_TEMPLATE("Bc > Br", T, float, half, bfloat16) {
  for (const auto& [Sq, Sk] :
       {std::pair<std::int64_t, std::int64_t>{128, 128}, {96, 160}, {160, 96}, {1, 64}, {33, 65}})
    for (const Mask causal : {Mask::top_left(), Mask::bottom_right()})
      check_forward<T>({.Sq = Sq, .Sk = Sk, .D = 64, .mask = causal, .block_q = 32, .block_k = 64},
                       on<T>(phase07::phase, Where::Sim), phase07::features);
}

// 8 x 8 tiles of 16 x 16: 28 left of the diagonal, 8 on it, 28 never loaded.
TEST_CASE("tiles of a square") {
  if (skipped_without(Where::Checked)) return;
  Inputs<float> in(
      {.B = 1, .H = 1, .Sq = 128, .Sk = 128, .D = 16, .mask = Mask::top_left(), .block_q = 16, .block_k = 16});
  const Run r = phase07::forward(in.problem(false), Where::Checked);
  CHECK(r.tiles == TileCounts{28, 8, 28});
  Ledger ledger = r.ledger;
  CHECK(ledger.array("K").read_bytes == 36 * 16 * 16 * sizeof(float));
}

// Keys beyond Sk are no tiles: a long query with few keys stops at them (loop end clipped).
TEST_CASE("more rows than keys: no tile beyond the last key") {
  if (skipped_without(Where::Checked)) return;
  Inputs<float> in(
      {.B = 1, .H = 1, .Sq = 256, .Sk = 40, .D = 16, .mask = Mask::top_left(), .block_q = 64, .block_k = 32});
  const Run r = phase07::forward(in.problem(false), Where::Checked);
  CHECK(r.tiles == TileCounts{4 - 1, 2 + 3, 0});  // tile 0: masked once, then full; tile 1 has 8 keys: masked
  CHECK(r.ledger.barriers == 4 * 2 * 2);
}

// The two alignments by name, on shapes where they differ in each direction.
TEST_CASE_TEMPLATE("top-left and bottom-right", T, float, half, bfloat16) {
  for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{100, 300}, {300, 100}}) {
    const Case top{.H = 1, .Sq = Sq, .Sk = Sk, .D = 16, .mask = Mask::top_left()};
    Case bottom = top;
    bottom.mask = Mask::bottom_right();
    check_forward<T>(top, on<T>(phase07::phase, Where::Sim), phase07::features);
    check_forward<T>(bottom, on<T>(phase07::phase, Where::Sim), phase07::features);
  }
}

// 300 rows, 100 keys, bottom-right: the first 200 rows see nothing. 0, not NaN, and their tiles are never loaded.
TEST_CASE("rows that see no key") {
  if (skipped_without(Where::Checked)) return;
  Inputs<half> in(
      {.B = 1, .H = 1, .Sq = 300, .Sk = 100, .D = 16, .mask = Mask::bottom_right(), .block_q = 16, .block_k = 16});
  const Run r = phase07::forward(in.problem(false), Where::Checked);
  for (std::int64_t i = 0; i < 200; ++i)
    for (std::int64_t d = 0; d < 16; ++d) CHECK(in.o.view.row(0, 0, i)[d].bits == 0);
  CHECK(r.tiles.skipped >= 12 * 7);  // 12 whole Q tiles of rows 0 … 191
}
