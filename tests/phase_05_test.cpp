// phase_05_test.cpp: proof of phase 05, the first kernel: the contract on the simulator, clean checked runs, counters
// equal to formulas, the same bits under every schedule, and the GPU where there is one.
// ./flash test 05
#include <doctest/doctest.h>

#include "phases/04-tiled-v2/attention.hpp"
#include "phases/05-first-kernel/attention.hpp"
#include "tests/kernel_phases.hpp"

using namespace flash;
using namespace flash::test;

namespace {
const auto run = [](const auto& p, Where where, const MachineOptions& o) { return phase05::forward(p, where, o); };
constexpr Features features = phase05::features;
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

TEST_CASE_TEMPLATE("equals phase 04", T, FLASH_TEST_TYPES) {
  const auto before = [](const auto& p) { phase04::forward(p); };
  for (const Input input : {Input::Normal, Input::Shifted, Input::Outliers, Input::Q60, Input::Rising, Input::LowEqual})
    check_equals_previous<T>({.Sq = 61, .Sk = 83, .D = 40, .input = input, .block_q = 16, .block_k = 16}, before,
                             on(Where::Sim, run));
}

// The kernel loads what phase 04's ledger says that the algorithm must load: same tiles, same bytes.
TEST_CASE_TEMPLATE("as many bytes as phase 04 with the same tiles", T, FLASH_TEST_TYPES) {
  if (skipped_without(Where::Checked)) return;
  Inputs<T> in({.Sq = 70, .Sk = 90, .D = 32, .block_q = 64, .block_k = 32});
  const Ledger model = phase04::forward(in.problem(false)), kernel = run(in.problem(false), Where::Checked, {}).ledger;
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
  run(in.problem(false), Where::Sim, {});
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
    run(in.problem(false), Where::Sim, {});
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
  const Run r = run(in.problem(false), Where::Sim, {});
  REQUIRE(r.kernels.size() == 6);
  for (const KernelReport& k : r.kernels) {
    CHECK(k.grid == std::array<unsigned, 3>{2, 1, 1});
    CHECK(k.block == std::array<unsigned, 3>{64, 1, 1});
  }
}
