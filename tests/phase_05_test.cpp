// phase_05_test.cpp: proof of phase 05, the first kernel: all that phases and kernels promise (promises.hpp), its
// counters, phase 04's bytes, and how P is rounded. Then the kernels of its staircase (steps/).
// ./flash test 05
#include <doctest/doctest.h>

#include "phases/04-tiled-v2/phase.hpp"
#include "phases/05-first-kernel/phase.hpp"
#include "phases/05-first-kernel/steps/steps.hpp"
#include "phases/pages/example.hpp"
#include "tests/row_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase05::phase;
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

// ---- The staircase --------------------------------------------------------------------------------------------------

namespace {

using phase05::Floats, phase05::NamedStep, phase05::Ran, phase05::Steps, phase05::attention_steps, phase05::steps_on;

Floats floats(const flash::Tensor<float>& t) {
  return {t.data(), t.data() + t.size()};
}

// One step on N random rows; its O goes into `e`. Without keep_going a finding throws.
Ran run_step(const NamedStep& step, Example& e, Where where, const MachineOptions& options = {}) {
  Floats o(e.o.size());
  const Ran ran = (steps_on(where).*step.run)(options, floats(e.q), floats(e.k), floats(e.v), o);
  std::copy(o.begin(), o.end(), e.o.data());
  return ran;
}

// Right against fp64, close to phase 04, and each step that changes no rounding has the bits of the step before.
void check_steps(Where where, const MachineOptions& options) {
  for (const int N : {1, 31, 64, 150}) {
    Example e = random_example(N, phase05::step_D), cpu = random_example(N, phase05::step_D);
    phase04::forward(cpu.problem({.block_q = 64, .block_k = 32}));
    Floats before;
    for (const NamedStep& step : attention_steps) {
      CAPTURE(std::string(step.name));
      CAPTURE(N);
      run_step(step, e, where, options);
      CHECK(worst_head(e) <= 2e-6);
      CHECK(relative_error(head(e.o, 0), head(cpu.o, 0).cast<double>().eval()) <= 4e-6);
      const bool same = same_bits(floats(e.o), before), rounds_anew = step.name[0] <= '4' || step.name[0] == '8';
      if (!rounds_anew && where != Where::Gpu) CHECK(same);
      before = floats(e.o);
    }
    phase05::forward(e.problem({.block_q = 64, .block_k = 32}), where == Where::Gpu ? Where::Sim : where);
    if (where != Where::Gpu) CHECK(same_bits(floats(e.o), before));
  }
}

Floats numbered(std::size_t count) {
  Floats x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i + 1);
  return x;
}

// The three kernels without attention, at sizes around a block; those that promise any size.
void check_first_steps(Where where, const MachineOptions& options) {
  const Steps& steps = steps_on(where);
  for (const std::size_t n : {1, 127, 128, 1000, 4096}) {
    const Floats x = numbered(n);
    for (const auto scale : {steps.scale, n == 4096 ? steps.scale_apart : steps.scale}) {
      Floats y(n);
      scale(options, 2.0f, x, y);
      for (std::size_t i = 0; i < n; ++i) REQUIRE(y[i] == 2.0f * x[i]);
    }
  }
  for (const int n : {1, 31, 33, 70})
    for (const auto transpose : {steps.transpose_directly, steps.transpose}) {
      const Floats in = numbered(static_cast<std::size_t>(n * n));
      Floats out(in.size());
      transpose(options, in, out, n);
      for (int y = 0; y < n; ++y)
        for (int x = 0; x < n; ++x) REQUIRE(out[x * n + y] == in[y * n + x]);
    }
}

}  // namespace

TEST_CASE("sim: the steps compute attention, and those that only move data change no bit") {
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    check_first_steps(Where::Sim, {.order = order, .seed = 7});
    check_steps(Where::Sim, {.order = order, .seed = 7});
  }
}

TEST_CASE("checked: clean, the steps too") {
  if (skipped_without(Where::Checked)) return;
  for (const Order order : {Order::forward, Order::random}) {
    check_first_steps(Where::Checked, {.order = order, .seed = 7});
    check_steps(Where::Checked, {.order = order, .seed = 7});
  }
}

TEST_CASE("gpu: the steps compute attention") {
  if (skipped_without(Where::Gpu)) return;
  check_first_steps(Where::Gpu, {});
  check_steps(Where::Gpu, {});
}

TEST_CASE("the transpose without a barrier is a race") {
  if (skipped_without(Where::Checked)) return;
  const Floats in = numbered(32 * 32);
  Floats out(in.size());
  const Ran ran = steps_on(Where::Checked).transpose_without_barrier({.keep_going = true}, in, out, 32);
  REQUIRE_FALSE(ran.findings.empty());
  for (const Finding& finding : ran.findings) CHECK((finding.kind == "race" || finding.kind == "uninitialised"));
}

// What each step is for, as a formula. W warps; every warp reads all N keys; all rows of a tile are computed.
TEST_CASE("each step moves the counter that it is for") {
  if (skipped_without(Where::Checked)) return;
  constexpr std::uint64_t D = phase05::step_D, Bc = phase05::step_Bc;
  for (const std::uint64_t N : {31, 150}) {
    CAPTURE(N);
    const std::uint64_t Tr = (N + 63) / 64, Tc = (N + 31) / 32, W = 2 * Tr;
    const std::uint64_t writes = W * (D + Tc * 2 * Bc / 2);  // a warp writes a row of 32 floats at a time
    std::map<std::string, Ledger> step;
    for (const NamedStep& s : attention_steps) {
      Example e = random_example(static_cast<std::int64_t>(N), D);
      step[s.name] = run_step(s, e, Where::Checked).report.ledger;
    }
    // HBM: naive reads Q, K and V once per pair and S 2 + D times; the tiled ones read K and V once per Q tile.
    CHECK(step["3-naive"].hbm_read_bytes() == 4 * N * N * (3 * D + D + 2));
    CHECK(step["3-naive"].hbm_written_bytes() == 4 * (2 * N * N + N * D));
    for (const NamedStep& s : attention_steps)
      if (s.name[0] >= '4') CHECK(step[s.name].hbm_bytes() == 4 * (2 * N * D + Tr * 2 * N * D));

    const std::uint64_t scalar = W * N * D;  // one float for each key and d
    CHECK(step["4-tiled"].shared_read_requests == 3 * scalar);
    CHECK(step["4-tiled"].shared_wavefronts == 32 * scalar + 2 * scalar + writes);
    CHECK(step["5-padded"].shared_read_requests == 3 * scalar);
    CHECK(step["5-padded"].shared_wavefronts == 3 * scalar + writes);
    CHECK(step["6-reuse"].shared_read_requests == 2 * scalar + W * Tc * D);
    CHECK(step["7-float4"].shared_read_requests == (2 * scalar + W * Tc * D) / 4);
    CHECK(step["9-unrolled"].shared_read_requests == (scalar + W * Tc * Bc * D + W * Tc * D) / 4 + W * N);
    for (const char* name : {"5-padded", "6-reuse", "7-float4", "8-exp2", "9-unrolled"})
      CHECK(step[name].bank_conflicts() == 0);
    CHECK(step["8-exp2"].exps == W * 32 * (N + Tc));
    CHECK(step["9-unrolled"].exps == W * 32 * (Tc * Bc + Tc));
  }
}
