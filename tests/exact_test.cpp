// exact_test.cpp: the yardstick of the tour and the benchmarks (phases/pages/exact.hpp) against the tests' own, in
// plain loops: two readings of the same documents.
// ctest -L common -R "^exact\."
#include "phases/pages/exact.hpp"

#include <doctest/doctest.h>

#include "tests/gradients.hpp"

using namespace flash;
using namespace flash::test;

namespace {

template <class T>
struct Pass {
  Tensor<T> q, k, v, o, dout, dq, dk, dv;
  std::vector<float> dlse;
  GradientProblem<T> problem;

  Pass(std::int64_t Sq, std::int64_t Sk, const Options& options, bool with_dlse) {
    const std::array<std::int64_t, 4> rows{2, 3, Sq, 20}, keys{2, 3, Sk, 20};
    q = random_tensor<T>(rows, 4, 0), k = random_tensor<T>(keys, 4, 1), v = random_tensor<T>(keys, 4, 2);
    dout = random_tensor<T>(rows, 4, 3), o = dq = q, dk = dv = k;
    for (std::int64_t i = 0; i < 6 * Sq; ++i) dlse.push_back(Random(4, 4).normal(static_cast<std::size_t>(i)));
    problem.q = view(std::as_const(q)), problem.k = view(std::as_const(k)), problem.v = view(std::as_const(v));
    problem.o = view(std::as_const(o)), problem.dout = view(std::as_const(dout));
    problem.dq = view(dq), problem.dk = view(dk), problem.dv = view(dv);
    if (with_dlse) problem.dlse = dlse.data();
    problem.options = options;
  }
};

void check_same(const RowMajor<double>& got, const std::vector<double>& want) {
  REQUIRE(static_cast<std::size_t>(got.size()) == want.size());
  CHECK(distance({got.data(), got.data() + got.size()}, want, got.cols()).relative <= 1e-14);
}

}  // namespace

TEST_CASE_TEMPLATE("O, LSE and gradients are those of the tests' own reference", T, float, half, bfloat16) {
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
    for (const auto& [Sq, Sk] : {std::pair{17, 23}, {23, 17}, {1, 40}})
      for (const bool with_dlse : {false, true}) {
        INFO("mask " << name(causal) << ", " << Sq << " rows, " << Sk << " keys");
        Options options{.mask = causal};
        if (with_dlse) options.scale = -0.3f;
        Pass<T> in(Sq, Sk, options, with_dlse);
        const Problem<T> forward = problem_as<T>(AnyProblem(in.problem));
        const Reference want = reference(forward);
        const Exact exact = exact_attention(forward);
        check_same(exact.o, want.o);
        REQUIRE(exact.lse.size() == want.lse.size());
        for (std::size_t row = 0; row < want.lse.size(); ++row)
          CHECK((exact.lse[row] == want.lse[row] || std::abs(exact.lse[row] - want.lse[row]) <= 1e-13));
        CHECK(rounding_floor<half>(exact.o) == doctest::Approx(test::rounding_floor<half>(want.o, 20).relative));

        const ExactGradients got = exact_gradients(in.problem);
        const GradientReference gradients = gradient_reference(in.problem);
        check_same(got.dq, gradients.dq);
        check_same(got.dk, gradients.dk);
        check_same(got.dv, gradients.dv);
      }
}
