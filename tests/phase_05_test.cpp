// phase_05_test.cpp: proof of phase 05, the first kernel: all that phases and kernels promise (promises.hpp), its
// counters, phase 04's bytes, and how P is rounded.
// ./flash test 05
#include <doctest/doctest.h>

#include "phases/04-tiled-v2/phase.hpp"
#include "phases/05-first-kernel/phase.hpp"
#include "tests/row_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase05::phase;
}
const Phase* flash::test::phase_before() {
  return &phase04::phase;
}

TEST_CASE_TEMPLATE("counters equal formulas", T, float, half, bfloat16) {
  check_row_kernel<T>();
}

// The kernel loads what phase 04's ledger says that the algorithm must load: same tiles, same bytes.
TEST_CASE_TEMPLATE("as many bytes as phase 04 with the same tiles", T, float, half, bfloat16) {
  if (skipped_without(Where::Checked)) return;
  Inputs<T> in({.Sq = 70, .Sk = 90, .D = 32, .block_q = 64, .block_k = 32});
  const Ledger model = phase04::forward(in.problem(false)).ledger,
               kernel = phase05::forward(in.problem(false), Where::Checked).ledger;
  CHECK(kernel.hbm_read_bytes() == model.hbm_read_bytes());
  CHECK(kernel.hbm_written_bytes() == model.hbm_written_bytes());
}

// P is rounded to V's type, not to a type that somebody wrote down: the second key weighs exp(-24) = 4e-11, which fp16
// would round to 0, and its value is 2^100.
TEST_CASE("P is rounded to V's type") {
  Inputs<bfloat16> in({.B = 1, .H = 1, .Sq = 1, .Sk = 2, .D = 16, .scale = 1.0f});
  in.q.fill(1, [](std::uint64_t i, std::int64_t) { return i == 0 ? 1.0f : 0.0f; });
  in.k.fill(2, [](std::uint64_t i, std::int64_t j) { return i % 16 == 0 && j == 1 ? -24.0f : 0.0f; });
  in.v.fill(2, [](std::uint64_t, std::int64_t j) { return j == 1 ? 0x1p100f : 0.0f; });
  phase05::forward(in.problem(false));
  CHECK(to_float(in.o.view.data[0]) == doctest::Approx(std::exp(-24.0) * 0x1p100).epsilon(0.01));
}

// Two keys with logits 0 and -x, values 0 and 1: O = round(p) / (1 + p). P is rounded before it meets V, and l sums
// the unrounded p; both rules show in the last bit for some x.
TEST_CASE("P is rounded, l is not") {
  int differs_without = 0, differs_with = 0;
  for (int n = 1; n <= 64; ++n) {
    Inputs<bfloat16> in({.B = 1, .H = 1, .Sq = 1, .Sk = 2, .D = 16, .scale = 1.0f});
    const float x = to_float(from_float<bfloat16>(0.05f * static_cast<float>(n)));
    in.q.fill(1, [](std::uint64_t i, std::int64_t) { return i == 0 ? 1.0f : 0.0f; });
    in.k.fill(2, [&](std::uint64_t i, std::int64_t j) { return i % 16 == 0 && j == 1 ? -x : 0.0f; });
    in.v.fill(2, [](std::uint64_t, std::int64_t j) { return static_cast<float>(j); });
    phase05::forward(in.problem(false));
    const float p = std::exp2(-x * 1.44269504f), rounded = to_float(from_float<bfloat16>(p));
    const std::uint16_t want = from_float<bfloat16>(rounded / (1 + p)).bits;
    CHECK(in.o.view.data[0].bits == want);
    differs_without += want != from_float<bfloat16>(p / (1 + p)).bits;
    differs_with += want != from_float<bfloat16>(rounded / (1 + rounded)).bits;
  }
  CHECK(differs_without > 0);  // the test can tell
  CHECK(differs_with > 0);
}

// Each launch covers one head: on a chip with 132 multiprocessors, 2 blocks at a time.
TEST_CASE("one launch per head") {
  Inputs<float> in({.B = 2, .H = 3, .Sq = 100, .Sk = 20, .D = 16, .block_q = 64, .block_k = 32});
  const Run r = phase05::forward(in.problem(false));
  REQUIRE(r.kernels.size() == 6);
  for (const KernelReport& k : r.kernels) {
    CHECK(k.grid == std::array<unsigned, 3>{2, 1, 1});
    CHECK(k.block == std::array<unsigned, 3>{64, 1, 1});
  }
}
