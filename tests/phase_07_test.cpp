// phase_07_test.cpp: proof of phase 07, causal masks: the contract on the simulator, clean checked runs, counters equal
// to formulas; tiles full, masked and skipped equal to a formula; the same bits as phase 06 without a mask.
// ./flash test 07
#include <doctest/doctest.h>

#include "phases/04-tiled-v2/attention.hpp"
#include "phases/06-4d-grid/attention.hpp"
#include "phases/07-causal/attention.hpp"
#include "tests/kernel_phases.hpp"

using namespace flash;
using namespace flash::test;

namespace {
const auto run = [](const auto& p, Where where, const MachineOptions& o) { return phase07::forward(p, where, o); };
const auto before = [](const auto& p, Where where, const MachineOptions& o) { return phase06::forward(p, where, o); };
constexpr Features features = phase07::features;
}  // namespace

TEST_CASE_TEMPLATE("contract", T, FLASH_TEST_TYPES) {
  check_contract<T>(on(Where::Sim, run), features, kernel_domain());
}
TEST_CASE("published shapes") {
  check_published<half>(on(Where::Sim, run), features);
}
TEST_CASE_TEMPLATE("promises", T, FLASH_TEST_TYPES) {
  check_promises<T>(on(Where::Sim, run), features);
}
TEST_CASE_TEMPLATE("bad input", T, FLASH_TEST_TYPES) {
  check_kernel_refusals<T>(run, features);
}
TEST_CASE_TEMPLATE("checked: clean", T, FLASH_TEST_TYPES) {
  check_clean<T>(run, features);
}
TEST_CASE_TEMPLATE("checked: counters equal formulas", T, FLASH_TEST_TYPES) {
  check_counters<T>(run, features);
}
TEST_CASE_TEMPLATE("any schedule gives the same bits", T, FLASH_TEST_TYPES) {
  check_schedules<T>(run, features);
}
TEST_CASE_TEMPLATE("gpu", T, FLASH_TEST_TYPES) {
  check_on_gpu<T>(run, features);
}

TEST_CASE_TEMPLATE("bit for bit as phase 06 without a mask", T, FLASH_TEST_TYPES) {
  check_same_bits<T>(before, run, {Causal::None}, 2);
}

TEST_CASE_TEMPLATE("equals phase 04", T, FLASH_TEST_TYPES) {
  const auto model = [](const auto& p) { phase04::forward(p); };
  for (const Causal causal : {Causal::TopLeft, Causal::BottomRight})
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{61, 83}, {83, 61}})
      check_equals_previous<T>({.Sq = Sq, .Sk = Sk, .D = 40, .causal = causal, .block_q = 16, .block_k = 16}, model,
                               on(Where::Sim, run));
}

// More keys than rows in a tile, no common factor between tile and diagonal: stepping by Bc up to a multiple of Br would
// run past the diagonal without a mask.
TEST_CASE_TEMPLATE("Bc > Br", T, FLASH_TEST_TYPES) {
  for (const auto& [Sq, Sk] :
       {std::pair<std::int64_t, std::int64_t>{128, 128}, {96, 160}, {160, 96}, {1, 64}, {33, 65}})
    for (const Causal causal : {Causal::TopLeft, Causal::BottomRight})
      check_forward<T>({.Sq = Sq, .Sk = Sk, .D = 64, .causal = causal, .block_q = 32, .block_k = 64},
                       on(Where::Sim, run), features);
}

// 8 x 8 tiles of 16 x 16: 28 left of the diagonal, 8 on it, 28 never loaded.
TEST_CASE("tiles of a square") {
  if (skipped_without(Where::Checked)) return;
  Inputs<float> in(
      {.B = 1, .H = 1, .Sq = 128, .Sk = 128, .D = 16, .causal = Causal::TopLeft, .block_q = 16, .block_k = 16});
  const Run r = run(in.problem(false), Where::Checked, {});
  CHECK(r.tiles == TileCounts{28, 8, 28});
  Ledger ledger = r.ledger;
  CHECK(ledger.array("K").read_bytes == 36 * 16 * 16 * sizeof(float));
}

// Keys beyond Sk are no tiles: a long query with few keys stops at them (loop end clipped).
TEST_CASE("more rows than keys: no tile beyond the last key") {
  if (skipped_without(Where::Checked)) return;
  Inputs<float> in(
      {.B = 1, .H = 1, .Sq = 256, .Sk = 40, .D = 16, .causal = Causal::TopLeft, .block_q = 64, .block_k = 32});
  const Run r = run(in.problem(false), Where::Checked, {});
  CHECK(r.tiles == TileCounts{4 - 1, 2 + 3, 0});  // tile 0: masked once, then full; tile 1 has 8 keys: masked
  CHECK(r.ledger.barriers == 4 * 2 * 2);
}

// The two alignments by name, on shapes where they differ in each direction.
TEST_CASE_TEMPLATE("top-left and bottom-right", T, FLASH_TEST_TYPES) {
  for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{100, 300}, {300, 100}}) {
    const Case top{.H = 1, .Sq = Sq, .Sk = Sk, .D = 16, .causal = Causal::TopLeft};
    Case bottom = top;
    bottom.causal = Causal::BottomRight;
    check_forward<T>(top, on(Where::Sim, run), features);
    check_forward<T>(bottom, on(Where::Sim, run), features);
  }
}

// 300 rows, 100 keys, bottom-right: the first 200 rows see nothing. 0, not NaN, and their tiles are never loaded.
TEST_CASE("rows that see no key") {
  if (skipped_without(Where::Checked)) return;
  Inputs<half> in(
      {.B = 1, .H = 1, .Sq = 300, .Sk = 100, .D = 16, .causal = Causal::BottomRight, .block_q = 16, .block_k = 16});
  const Run r = run(in.problem(false), Where::Checked, {});
  for (std::int64_t i = 0; i < 200; ++i)
    for (std::int64_t d = 0; d < 16; ++d) CHECK(in.o.view.row(0, 0, i)[d].bits == 0);
  CHECK(r.tiles.skipped >= 12 * 7);  // 12 whole Q tiles of rows 0 … 191
}
