// phase_13_test.cpp: proof of phase 13, the instruction diet: all that phases and kernels promise (promises.hpp), and
// its counters from formulas, whenever the copies arrive.
// ./flash test 13
#include <doctest/doctest.h>

#include "phases/12-async-copies/phase.hpp"
#include "phases/13-instruction-diet/steps/steps.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase13::phase;
}
const Phase* flash::test::phase_before() {
  return &phase12::phase;
}

TEST_CASE_TEMPLATE("copies may arrive at any time", T, half, bfloat16) {
  check_completions<T>();
}

// ---- The staircase --------------------------------------------------------------------------------------------------

namespace {

using phase13::run_step, phase13::step_count, phase13::step_names;

Case step_case(std::int64_t N, Causal causal, Input input = Input::Normal) {
  return {.H = 1, .Sq = N, .Sk = N, .D = 128, .input = input, .causal = causal};
}

}  // namespace

TEST_CASE("trial") {
  for (std::size_t step = 0; step < step_count; ++step)
    for (int input = 0; input <= static_cast<int>(Input::Denormals); ++input) {
      Figures f;
      for (const Causal causal : {Causal::None, Causal::TopLeft}) {
        const auto bad = examine<bfloat16>(step_case(256, causal, static_cast<Input>(input)),
                         [&](const Problem<bfloat16>& p) { run_step(step, p, Where::Sim); }, phase13::features, &f);
        for (const auto& b : bad) std::printf("%s: %s\n", step_names[step], b.c_str());
      }
      std::printf("%s %s %.2f %.2f %.2f\n", step_names[step], name(static_cast<Input>(input)), f.o, f.row, f.lse);
    }
}
