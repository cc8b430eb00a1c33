// phase_13_test.cpp: proof of phase 13, the instruction diet: all that phases and kernels promise (promises.hpp), and
// whenever the copies arrive. Then the kernels of its staircase (steps/), with their counters from formulas.
// ./flash test 13
#include <doctest/doctest.h>

#include "phases/09-backward/phase.hpp"
#include "phases/12-async-copies/phase.hpp"
#include "phases/13-instruction-diet/steps/steps.hpp"
#include "phases/pages/example.hpp"
#include "tests/tensor_kernels.hpp"
#include "tests/training_gradients.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase13::phase;
}

TEST_CASE_TEMPLATE("gradients of what was kept, by phase 09", T, half, bfloat16) {
  check_training_gradients<T>(phase13::phase, phase09::phase);
}

TEST_CASE_TEMPLATE("copies may arrive at any time", T, half, bfloat16) {
  check_completions<T>();
}

// Equal scores mean P = 1 for each key, exactly: O is V, to the last bit. Where m is not subtracted first, c · m, a
// million here, is rounded by so much that P is not 1.
TEST_CASE_TEMPLATE("equal scores, and huge", T, half, bfloat16) {
  const Case c{.B = 1, .H = 1, .Sq = 64, .Sk = 80, .D = 64};
  Inputs<T> in(c);
  const float v = to_float(from_float<T>(1.99f));
  in.q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return 1000.0f + 8.0f * static_cast<float>(i / 64 % 64); });
  in.k.fill(c.Sk, [&](std::uint64_t, std::int64_t) { return 100.0f; });
  in.v.fill(c.Sk, [&](std::uint64_t, std::int64_t) { return v; });
  flash::forward(phase_under_test(), in.problem(true), Where::Sim);
  int others = 0;
  for (const double o : gather(in.o.view)) others += o != v;
  CHECK(others == 0);
}

// ---- The staircase --------------------------------------------------------------------------------------------------

namespace {

using phase13::run_step, phase13::step_count, phase13::step_names;
constexpr std::size_t rows_step = 7, order_step = 8, rescale_step = 9;  // 5-rows, 5-order, 6-rescale

// Within the bars of the contract: one tile of keys and several, logits of all sizes, and a mask.
void check_step(std::size_t step, Where where) {
  CAPTURE(std::string(step_names[step]));
  const auto check = [&](std::int64_t N, Mask causal, Input input, std::int64_t H = 1) {
    const Case c{.B = 1, .H = H, .Sq = N, .Sk = N, .D = 128, .input = input, .mask = causal};
    check_forward<bfloat16>(
        c, [&](const Problem<bfloat16>& p) { run_step(step, p, where); }, phase13::features);
  };
  for (const std::int64_t N : {128, 256}) check(N, Mask::none(), Input::Normal);
  check(256, Mask::top_left(), Input::Normal, 2);
  for (const Input input : {Input::Outliers, Input::Q60, Input::Shuffled, Input::LowVaried})
    check(128, Mask::top_left(), input);
}

// O and LSE of one head of N random rows, and what was counted.
struct Result {
  Rounded<bfloat16> data;
  Ledger ledger;

  explicit Result(std::int64_t N) : data(random_example(N, 128)) {}
  bool same_o(const Result& other) const {
    return std::memcmp(data.o.data(), other.data.o.data(), data.o.size() * sizeof(bfloat16)) == 0;
  }
  bool same_lse(const Result& other) const { return same_bits(data.lse, other.data.lse); }
};
Result result_of(std::size_t step, std::int64_t N, Mask causal, Where where, const MachineOptions& options = {},
                 float scale = 0 /*as it is*/) {
  Result result(N);
  Options problem{.mask = causal};
  if (scale != 0) problem.scale = scale;
  result.ledger = run_step(step, result.data.problem(problem), where, options).ledger;
  return result;
}
template <class Forward>
Result result_of(const Forward& forward, std::int64_t N, const Options& options) {
  Result result(N);
  forward(result.data.problem(options));
  return result;
}

}  // namespace

TEST_CASE("sim: the steps compute attention") {
  for (std::size_t step = 0; step < step_count; ++step) check_step(step, Where::Sim);
}

TEST_CASE("gpu: the steps compute attention") {
  if (skipped_without(Where::Gpu)) return;
  for (std::size_t step = 0; step < step_count; ++step) check_step(step, Where::Gpu);
}

// The staircase leads from phase 12 to phase 13, and what does not round anew changes no bit.
TEST_CASE("sim: the first step has the bits of phase 12, the last those of phase 13") {
  const std::int64_t N = 256;
  for (const Mask causal : {Mask::none(), Mask::top_left()}) {
    std::vector<Result> step;
    for (std::size_t i = 0; i < step_count; ++i) step.push_back(result_of(i, N, causal, Where::Sim));
    const Result before =
        result_of([](const auto& p) { phase12::forward(p); }, N, {.mask = causal, .block_q = 64, .block_k = 64});
    const Result after =
        result_of([](const auto& p) { phase13::forward(p); }, N, {.mask = causal, .block_q = 128, .block_k = 64});
    const auto same = [](const Result& a, const Result& b) { return a.same_o(b) && a.same_lse(b); };
    CHECK(same(before, step[0]));
    CHECK_FALSE(same(step[0], step[1]));  // the scale is applied elsewhere
    CHECK_FALSE(same(step[1], step[2]));  // another order of tiles, other maxima on the way
    CHECK(same(step[2], step[3]));
    CHECK(step[3].same_lse(step[4]));  // 1 / l is rounded, O then again: that rarely shows
    for (const std::size_t notation : {5, 6}) CHECK(same(step[notation - 1], step[notation]));
    CHECK(same(step[6], step[rows_step]));
    CHECK(same(step[rows_step], step[order_step]));
    CHECK_FALSE(same(step[order_step], step[rescale_step]));  // m is no longer the maximum
    if (causal == Mask::none())
      CHECK(same(step[rescale_step], step[rescale_step + 1]));  // with a mask some maxima are negative
    CHECK(same(step[rescale_step + 1], step[rescale_step + 2]));
    CHECK(same(step[rescale_step + 2], after));
  }
}

TEST_CASE("checked: clean, the steps too, with the same bits and counters whenever copies arrive") {
  if (skipped_without(Where::Checked)) return;
  for (std::size_t step = 0; step < step_count; ++step)
    for (const Mask causal : {Mask::none(), Mask::top_left()}) {
      CAPTURE(std::string(step_names[step]));
      const float scale = causal == Mask::none() ? -0.1f : 0;  // a negative one turns the signs of Q in shared memory
      const Result late = result_of(step, 256, causal, Where::Checked, {}, scale);
      for (const auto& [order, completion] :
           {std::pair{Order::reverse, Completion::eager}, {Order::random, Completion::random}}) {
        const Result again =
            result_of(step, 256, causal, Where::Checked, {.order = order, .seed = 7, .completion = completion}, scale);
        CHECK(late.same_o(again));
        CHECK(late.same_lse(again));
        CHECK(late.ledger == again.ledger);
      }
    }
}

namespace {

// How often a warp of `rows` rows rescales: where, from the last tile to the first, a row's maximum in base 2 outgrows
// the one that was taken last; by more than 8, once that was taken from a tile that all rows of the block see whole.
std::uint64_t rescales(const RowMajor<double>& S /*[N, N], in base 2*/, std::int64_t rows, bool causal) {
  const std::int64_t N = S.rows();
  std::uint64_t count = 0;
  for (std::int64_t first = 0; first < N; first += rows) {
    std::vector<double> m(static_cast<std::size_t>(rows), -INFINITY), top = m;
    double slack = 0;
    for (std::int64_t key = N - 64; key >= 0; key -= 64) {
      bool grown = false;
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t keys = causal ? std::clamp<std::int64_t>(first + r + 1 - key, 0, 64) : 64;
        top[r] = m[r];
        for (std::int64_t j = key; j < key + keys; ++j) top[r] = std::max(top[r], S(first + r, j));
        grown |= top[r] > m[r] + slack;
      }
      if (!grown) continue;
      m = top, ++count;
      if (!causal || key < first / 128 * 128) slack = 8;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("each step's counters equal formulas") {
  if (skipped_without(Where::Checked)) return;
  for (const std::uint64_t N : {128, 256})
    for (const bool causal : {false, true}) {
      const Mask mask = causal ? Mask::top_left() : Mask::none();
      const RowMajor<double> S = scores<double>(Result(static_cast<std::int64_t>(N)).data.widened(), 0) / std::log(2.0);
      for (std::size_t step = 0; step < step_count; ++step) {
        CAPTURE(std::string(step_names[step]));
        CAPTURE(N);
        CAPTURE(causal);
        // Tiles that blocks copy, and that their warps multiply: all of them, but with a mask those seen.
        const std::uint64_t rows = step < rows_step ? 16 : 32, Br = 4 * rows, warps = N / rows, row = 256;
        std::uint64_t tiles = 0, multiplied = 0;
        for (std::uint64_t first = 0; first < N; first += rows)
          for (std::uint64_t key = 0; key < N; key += 64) {
            tiles += first % Br == 0 && (!causal || key < first + Br);
            multiplied += step < rows_step ? !causal || key < first / Br * Br + Br : !causal || key < first + rows;
          }
        Ledger l = result_of(step, static_cast<std::int64_t>(N), mask, Where::Checked).ledger;
        const auto bytes = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
        check_traffic(l, {{"Q", bytes(N * row), 0},
                          {"K", bytes(tiles * 64 * row), 0},
                          {"V", bytes(tiles * 64 * row), 0},
                          {"O", 0, bytes(N * row)},
                          {"LSE", 0, bytes(N * 4)}});
        CHECK(l.tensor_flops == multiplied * 4 * rows * 64 * 128);
        // One for each element of P; and each lane one per row of its own when it rescales.
        const std::uint64_t rescaled = step < rescale_step ? multiplied : rescales(S, 32, causal);
        CHECK(l.exps == multiplied * rows * 64 + rescaled * 32 * rows / 8);
        CHECK(l.barriers == tiles + (2 <= step ? N / Br : 0));
        CHECK(l.shared_bytes_peak == (Br + 4 * 64) * row);
        // ldmatrix: 16 x 16 of K and V; of Q once, or with each tile. Then O, 16 bytes a lane, out of Q's rows.
        const std::uint64_t matrices = 4 * 8, q = rows / 16 * 8, out = step < 4 ? 0 : rows * row / 512;
        const std::uint64_t loads = step < rows_step ? multiplied * 2 * matrices + warps * (q + out)
                                                     : multiplied * (2 * matrices + q) + warps * out;
        const std::uint64_t stores = step < 4 ? 0 : warps * rows * row / 4 / 32;
        CHECK(l.shared_read_requests == loads);
        CHECK(l.shared_write_requests == stores);
        CHECK(l.shared_wavefronts == 4 * loads + stores);
        CHECK(l.bank_conflicts() == 0);
        CHECK(l.array("O").write_requests == warps * rows * row / (step < 4 ? 2 : 16) / 32);
      }
    }
}

TEST_CASE("what the steps leave out is refused") {
  Inputs<bfloat16> in({.B = 1, .H = 2, .Sq = 128, .Sk = 128, .D = 128});
  const auto refused = [&](const std::string& message, const auto& break_it, std::size_t step = 0) {
    Problem<bfloat16> p = in.problem(true);
    break_it(p);
    CHECK_THROWS_WITH_AS(run_step(step, p, Where::Sim), message.c_str(), Error);
  };
  const auto reshaped = [](Problem<bfloat16>& p, const std::array<std::int64_t, 4>& shape) {
    for (auto* view : {&p.q, &p.k, &p.v}) *view = dense_view(view->data, shape);
    p.o = dense_view(p.o.data, shape);
  };
  refused("K's shape is [1, 2, 64, 128]; expected [1, 2, 128, 128]; use phase 13", [](auto& p) { p.k.shape[2] = 64; });
  refused("V's stride is [32768, 16384, 136, 1]; expected dense; use phase 13", [](auto& p) { p.v.stride[2] = 136; });
  refused("D is 64; expected 128; use phase 13", [&](auto& p) { reshaped(p, {1, 2, 128, 64}); });
  refused("N is 64; expected a multiple of 128; use phase 13", [&](auto& p) { reshaped(p, {1, 2, 64, 128}); });
  refused("LSE is null; expected an array; use phase 13", [](auto& p) { p.lse = nullptr; });
  refused("scale is inf; expected finite; use phase 13", [](auto& p) { p.options.scale = INFINITY; });
  refused("mask is bottom-right; expected none or top-left; use phase 13",
          [](auto& p) { p.options.mask = Mask::bottom_right(); });
  refused(
      "step is 12; expected 0 to 11; choose one of these", [](auto&) {}, step_count);
}
