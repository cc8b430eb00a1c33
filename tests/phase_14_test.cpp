// phase_14_test.cpp: proof of phase 14: all that phases and kernels promise (promises.hpp); the small kernels of its
// pages; and the kernels of its staircase (steps/), with their counters from formulas.
// ./flash test 14
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "phases/13-instruction-diet/phase.hpp"
#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "phases/pages/example.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase14::phase;
}

TEST_CASE_TEMPLATE("copies and products may be done at any time", T, half, bfloat16) {
  check_completions<T>();
}

// ---- The small kernels of the pages on TMA and wgmma ----------------------------------------------------------------

namespace {

using phase14::Floats;
using phase14::Halves;
using phase14::Numbers;
using phase14::Ran;
using phase14::small_on;

// A tile whose elements are their own numbers, 64 · row + column - 2048: whole numbers that fp16 holds exactly; and one
// that picks a column for each column.
Halves numbered() {
  Halves tile(64 * 64);
  for (int i = 0; i < 64 * 64; ++i) tile[i] = from_float<half>(static_cast<float>(i - 2048));
  return tile;
}
Halves one_where(const auto& picks) {
  Halves tile(64 * 64);
  for (int i = 0; i < 64 * 64; ++i) tile[i] = from_float<half>(picks(i / 64, i % 64) ? 1.0f : 0.0f);
  return tile;
}
void check_clean(const Ran& ran) {
  for (const Finding& finding : ran.findings) FAIL_CHECK(finding.text);
}

// All of them, on a machine.
void check_small_kernels(Where where, const MachineOptions& options = {}) {
  const phase14::Small& small = small_on(where);
  Numbers tensor(20 * 128), seen(16 * 64);
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::uint16_t>(i + 1);
  check_clean(small.box(options, tensor, 128, 64, 8, seen));
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 64; ++column)  // pieces of 8 change places; rows 20 and later do not exist
      CHECK(seen[row * 64 + (column ^ row % 8 * 8)] == (row + 8 < 20 ? tensor[(row + 8) * 128 + 64 + column] : 0));

  Numbers rows(70 * 64, 3);
  std::vector<unsigned> sums(64);
  check_clean(small.sums(options, rows, 1, sums));
  CHECK(sums == std::vector<unsigned>(64, 210));

  Floats S(64 * 64), O(64 * 64), first(64 * 64);
  check_clean(small.product(options, numbered(), one_where(std::equal_to<>()), S));
  std::vector<int> times(64 * 64);
  for (const float element : S) ++times.at(static_cast<std::size_t>(element + 2048));
  CHECK(times == std::vector<int>(64 * 64, 1));  // each element of S has one thread
  check_clean(small.one_step(options, numbered(), one_where(std::equal_to<>()), first));
  for (std::size_t i = 0; i < S.size(); ++i) CHECK(first[i] == (i % 32 < 8 ? S[i] : 0));  // its first 16 columns

  const Halves next = one_where([](int k, int d) { return d == (k + 1) % 64; });  // V: column k goes to k + 1
  const auto moved = [](float element, int by) {
    const int at = static_cast<int>(element) + 2048;
    return static_cast<float>(at / 64 * 64 + (at + by + 64) % 64 - 2048);
  };
  check_clean(small.second(options, S, next, O));
  for (std::size_t i = 0; i < S.size(); ++i) CHECK(O[i] == moved(S[i], -1));
  check_clean(small.second_k_major(options, S, next, O));  // taken for its transpose: column k goes to k - 1
  for (std::size_t i = 0; i < S.size(); ++i) CHECK(O[i] == moved(S[i], 1));
}

}  // namespace

TEST_CASE("sim: the small kernels") {
  check_small_kernels(Where::Sim);
}

TEST_CASE("checked: clean, the small kernels too, whenever copies and products are done") {
  if (skipped_without(Where::Checked)) return;
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    check_small_kernels(Where::Checked, {.order = Order::random, .seed = 14, .completion = completion});
}

TEST_CASE("gpu: the small kernels") {
  if (skipped_without(Where::Gpu)) return;
  check_small_kernels(Where::Gpu);
}

TEST_CASE("checked: what the small kernels leave out on purpose is found") {
  if (skipped_without(Where::Checked)) return;
  const phase14::Small& small = small_on(Where::Checked);
  const MachineOptions go_on{.threads = 1, .keep_going = true};
  const Floats P(64 * 64, 1);
  const Halves V = numbered();
  Floats O(64 * 64);
  const auto first_line = [](const Ran& ran) {
    REQUIRE_FALSE(ran.findings.empty());
    return ran.findings.front().text.substr(0, ran.findings.front().text.find('\n'));
  };
  std::vector<unsigned> sums(64);
  CHECK(first_line(small.sums(go_on, Numbers(80 * 64), 0, sums)).find("asynchronous copy") != std::string::npos);
  CHECK(first_line(small.without_fence(go_on, P, V, O)).find("without a wgmma_fence") != std::string::npos);
  for (const auto wrong : {small.without_commit, small.wait_too_short})
    CHECK(first_line(wrong(go_on, P, V, O)).find("names an array whose product it leaves under way") !=
          std::string::npos);
}

// ---- The staircase --------------------------------------------------------------------------------------------------

namespace {

using phase14::steps;
enum : std::size_t { words, rows_once, finish, order, ahead, panels, tma, scores_by_wgmma };

// Within the bars of the contract: ragged lengths, the masks, large logits, rows that see no key.
void check_step(std::size_t step, Where where) {
  CAPTURE(std::string(steps[step]->name));
  const auto check = [&](std::int64_t Sq, std::int64_t Sk, Mask mask, Input input) {
    const Case c{.B = 1, .H = 2, .Sq = Sq, .Sk = Sk, .D = 120, .input = input, .mask = mask};
    check_forward<bfloat16>(c, on<bfloat16>(*steps[step], where), phase14::one_size);
  };
  check(200, 200, Mask::top_left(), Input::Normal);
  check(40, 150, Mask::none(), Input::Q60);
  check(70, 100, Mask::bottom_right(), Input::Outliers);
  check(130, 100, Mask::bottom_right(), Input::LowVaried);
}

// O and LSE of one head of N random rows, and what was counted.
struct Result {
  Rounded<bfloat16> data;
  Ledger ledger;

  Result(const Phase& phase, Where where, std::int64_t N, Mask mask, const MachineOptions& options = {},
         float scale = 0 /*as it is*/)
      : data(random_example(N, 128)) {
    Options problem{.mask = mask, .block_q = 128, .block_k = 64};
    if (scale != 0) problem.scale = scale;
    ledger = flash::forward(phase, data.problem(problem), where, options).ledger;
  }
  bool same_lse(const Result& other) const { return same_bits(data.lse, other.data.lse); }
  bool operator==(const Result& other) const {
    return std::memcmp(data.o.data(), other.data.o.data(), data.o.size() * sizeof(bfloat16)) == 0 && same_lse(other);
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

// The staircase leads to phase 14, and what does not round anew changes no bit.
TEST_CASE("sim: the last steps have the bits of phase 14") {
  for (const Mask mask : {Mask::none(), Mask::top_left()}) {
    std::vector<Result> step;
    for (const Phase* phase : steps) step.emplace_back(*phase, Where::Sim, 200, mask);
    CHECK(step[words] == step[rows_once]);
    CHECK(step[rows_once].same_lse(step[finish]));  // 1 / l is rounded, O then again
    CHECK_FALSE(step[finish] == step[order]);       // other maxima on the way
    for (std::size_t later = order + 1; later < steps.size(); ++later) CHECK(step[order] == step[later]);
    CHECK(step[order] == Result(phase14::phase, Where::Sim, 200, mask));
  }
}

TEST_CASE("checked: clean, the steps too, with the same bits and counters whenever copies arrive") {
  if (skipped_without(Where::Checked)) return;
  for (std::size_t step = 0; step < steps.size(); ++step)
    for (const Mask mask : {Mask::none(), Mask::top_left()}) {
      CAPTURE(std::string(steps[step]->name));
      const float scale = mask == Mask::none() ? -0.1f : 0;  // a negative one turns the signs of S
      const Result late(*steps[step], Where::Checked, 256, mask, {}, scale);
      const Result again(*steps[step], Where::Checked, 256, mask,
                         {.order = Order::random, .seed = 14, .completion = Completion::random}, scale);
      CHECK(late == again);
      CHECK(late.ledger == again.ledger);
    }
}

TEST_CASE("each step's counters equal formulas") {
  if (skipped_without(Where::Checked)) return;
  const std::uint64_t N = 256, blocks = 2, tiles = 2 + 4 /*of the two blocks*/, row = 256, tile = 64 * row;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    CAPTURE(std::string(steps[step]->name));
    Ledger l = Result(*steps[step], Where::Checked, 256, Mask::top_left()).ledger;
    CHECK(l.array("K").read_bytes == tiles * tile);
    CHECK(l.tensor_flops == tiles * 4 * 128 * 64 * 128);
    CHECK(l.exps == tiles * (128 * 64 + 256 * 2));  // P, and each lane one for each of its rows
    CHECK(l.bank_conflicts() == 0);
    // ldmatrix by each of 8 warps: 16 x 16 of K and of V, 4 · 8 each; of Q once 8. Operands of wgmma are not loaded.
    const std::uint64_t of_tile = step < scores_by_wgmma ? 64 : 32, of_q = step < scores_by_wgmma ? 8 : 0;
    CHECK(l.shared_read_requests == 8 * (tiles * of_tile + blocks * of_q));
    CHECK(l.wgmma_shared_bytes == (step < scores_by_wgmma ? 0 : tiles * 2 * 2 * tile));  // Q and K
    CHECK(l.barriers == (step < ahead ? tiles : step < tma ? 2 * tiles : blocks + tiles));
    CHECK(l.array("O").write_requests == N * row / (step < finish ? 2 : 4) / 32);
  }
}
