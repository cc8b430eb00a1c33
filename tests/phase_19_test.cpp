// phase_19_test.cpp: proof of phase 19: all that phases and kernels promise (promises.hpp); and the kernels of its
// staircase (steps/), with their counters from formulas.
// ./flash test 19
#include <doctest/doctest.h>

#include "phases/09-backward/phase.hpp"
#include "phases/18-diet/phase.hpp"
#include "phases/19-beyond/steps/steps.hpp"
#include "phases/pages/example.hpp"
#include "tests/steps.hpp"
#include "tests/tensor_kernels.hpp"
#include "tests/training_gradients.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase19::phase;
}

TEST_CASE_TEMPLATE("gradients of what was kept, by phase 09", T, half, bfloat16) {
  check_training_gradients<T>(phase19::phase, phase09::phase);
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}

// What O's tile has beyond D stays in the registers: of store_rows alone, TMA leaves it out by itself.
TEST_CASE_TEMPLATE("columns beyond D are not stored", T, half, bfloat16) {
  const Case c{.Sq = 70, .Sk = 100, .D = 200, .layout = Layout::Padded, .granule = 8};
  check_forward<T>(c, on<T>(phase_under_test(), Where::Sim), features_under_test());
}

// Where a block has two Q tiles, and copies come at once, a warpgroup that sees few keys is ahead of the others by more
// than the stages of K: it gives no stage back twice before the others have given it back once.
TEST_CASE("checked: K that a warpgroup does not see is given back when it is there") {
  if (skipped_without(Where::Checked)) return;
  for (const auto& [D, Br, Bc] : {std::array<std::int64_t, 3>{64, 256, 64}, {64, 192, 128}, {256, 128, 64}}) {
    const Case c{.B = 1, .H = 4, .Sq = Br, .Sk = Br, .D = D, .mask = Mask::top_left(), .block_q = Br, .block_k = Bc};
    INFO(text(c));
    CHECK_NOTHROW(Outcome(phase_under_test(), c, Where::Checked, {.completion = Completion::eager}));
  }
}

// ---- The staircase --------------------------------------------------------------------------------------------------

namespace {

using phase19::steps;
constexpr std::size_t wide_step = 5;  // 6-wide: from here on D = 256

int dim_of(std::size_t step) {
  return steps[step]->forward->features.largest_D();
}

// Within the bars of the contract: ragged lengths, two Q tiles of which a block may draw both, the masks, large logits.
void check_step(std::size_t step, Where where) {
  CAPTURE(std::string(steps[step]->name));
  const auto check = [&](std::int64_t Sq, std::int64_t Sk, Mask mask, Input input) {
    const Case c{.B = 1, .H = 2, .Sq = Sq, .Sk = Sk, .D = dim_of(step) - 8, .input = input, .mask = mask};
    check_forward<bfloat16>(c, on<bfloat16>(*steps[step], where), steps[step]->forward->features);
  };
  check(300, 300, Mask::top_left(), Input::Normal);
  check(70, 150, Mask::bottom_right(), Input::Q60);
  check(40, 200, Mask::none(), Input::Outliers);
  check(130, 100, Mask::bottom_right(), Input::LowVaried);  // rows that see no key
}

// O and LSE of one head of N random rows, and what was counted.
struct Result {
  Rounded<bfloat16> data;
  Ledger ledger;

  Result(const Phase& phase, Where where, std::int64_t N, std::int64_t D, Mask mask, const MachineOptions& options = {},
         float scale = 0 /*as it is*/)
      : data(random_example(N, D)) {
    Options problem{.mask = mask, .block_q = 0, .block_k = 64};
    if (&phase == &phase18::phase) problem.block_q = 128;
    if (scale != 0) problem.scale = scale;
    ledger = flash::forward(phase, data.problem(problem), where, options).ledger;
  }
  bool operator==(const Result& other) const {
    return std::memcmp(data.o.data(), other.data.o.data(), data.o.size() * sizeof(bfloat16)) == 0 &&
           same_bits(data.lse, other.data.lse);
  }
};

}  // namespace

TEST_CASE("sim: the steps compute attention") {
  for (std::size_t step = 0; step < steps.size(); ++step) check_step(step, Where::Sim);
}

TEST_CASE("gpu: the steps compute attention") {
  if (skipped_without(Where::Gpu)) return;
  for (std::size_t step = 0; step < steps.size(); ++step) check_step(step, Where::Gpu);
}

// No step rounds anything anew.
TEST_CASE("sim: the steps have the bits of phase 18, or of phase 19 where 18 has none") {
  for (const Mask mask : {Mask::none(), Mask::top_left()}) {
    const Result narrow(phase18::phase, Where::Sim, 300, 64, mask), wide(phase19::phase, Where::Sim, 150, 256, mask);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      CAPTURE(std::string(steps[step]->name));
      CHECK(Result(*steps[step], Where::Sim, step < wide_step ? 300 : 150, dim_of(step), mask) ==
            (step < wide_step ? narrow : wide));
    }
  }
}

TEST_CASE("checked: clean, the steps too, with the same bits and counters whenever copies arrive") {
  if (skipped_without(Where::Checked)) return;
  for (std::size_t step = 0; step < steps.size(); ++step)
    for (const Mask mask : {Mask::none(), Mask::top_left()}) {
      CAPTURE(std::string(steps[step]->name));
      const float scale = mask == Mask::none() ? -0.1f : 0;  // a negative one turns the signs of S
      const Result late(*steps[step], Where::Checked, 300, dim_of(step), mask, {}, scale);
      const Result again(*steps[step], Where::Checked, 300, dim_of(step), mask,
                         {.order = Order::random, .seed = 19, .completion = Completion::random}, scale);
      CHECK(late == again);
      CHECK(late.ledger == again.ledger);
    }
}

TEST_CASE("each step's counters equal formulas") {
  if (skipped_without(Where::Checked)) return;
  const std::uint64_t N = 256;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    CAPTURE(std::string(steps[step]->name));
    const std::uint64_t D = static_cast<std::uint64_t>(dim_of(step)), row = D * 2, square = 64 * row;
    const std::uint64_t Br = step == 0 || step >= wide_step ? 128 : 256;
    Ledger l =
        Result(*steps[step], Where::Checked, static_cast<std::int64_t>(N), dim_of(step), Mask::top_left()).ledger;
    // A block loads the K/V tiles that its last row sees; its warpgroups multiply them all, from 3-pass on their own.
    std::uint64_t loaded = 0, multiplied = 0;
    for (std::uint64_t first = 0; first < N; first += 64) {
      const std::uint64_t of_block = (first / Br + 1) * Br / 64, own = first / 64 + 1;
      loaded += first % Br == 0 ? of_block : 0;
      multiplied += step < 2 ? of_block : own;
    }
    CHECK(l.array("K").read_bytes == loaded * square);
    CHECK(l.tensor_flops == multiplied * 4 * 64 * 64 * D);
    CHECK(l.exps >= multiplied * 64 * 64);
    CHECK(l.wgmma_shared_bytes == multiplied * 3 * square);  // Q, K and V, each 64 rows
    // O leaves by TMA; at D = 256 from registers, 4 bytes a lane, then 16.
    const std::uint64_t bytes = N * row;
    CHECK(l.array("O").write_sectors == (step == wide_step ? 2 : 1) * bytes / 32);
    if (step >= wide_step) CHECK(l.array("O").write_requests == bytes / (step == wide_step ? 4 : 16) / 32);
  }
}
