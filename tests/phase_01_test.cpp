// phase_01_test.cpp: proof of phase 01: naive attention keeps the contract, and costs what its formulas say.
// Everything later is compared with this phase, and this phase with fp64.
// ./flash test 01
#include <doctest/doctest.h>

#include "phases/01-naive/attention.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase01::phase;
}

namespace {
const auto run = [](const auto& p) { phase01::forward(p); };
}  // namespace

// P sums to 1 before it meets V: O is right where later phases' sums overflow.
TEST_CASE("V up to FLT_MAX, with any number of keys") {
  CHECK_FALSE(check_range_of_v<float>(Where::Sim));
}

TEST_CASE_TEMPLATE("ledger", T, float, half, bfloat16) {
  for (const Mask causal : {Mask::none(), Mask::top_left()}) {
    const Case c{.B = 2, .H = 3, .Sq = 37, .Sk = 53, .D = 24, .mask = causal};
    Inputs<T> in(c);
    const Ledger ledger = phase01::forward(in.problem(false)).ledger;
    const std::int64_t heads = c.B * c.H, e = sizeof(T), f = sizeof(float);
    const std::int64_t s_bytes = heads * c.Sq * c.Sk * f;  // S and P are written and read back, mask or not: O(N²)
    check_traffic(ledger, {{"Q", heads * c.Sq * c.D * e, 0},
                           {"K", heads * c.Sk * c.D * e, 0},
                           {"V", heads * c.Sk * c.D * e, 0},
                           {"O", 0, heads * c.Sq * c.D * e},
                           {"S", s_bytes, s_bytes},
                           {"P", s_bytes, s_bytes}});
    std::int64_t seen = 0;  // pairs of a head: P V leaves out what the mask hides
    for (std::int64_t i = 0; i < c.Sq; ++i) seen += causal == Mask::none() ? c.Sk : std::min(i + 1, c.Sk);
    CHECK(ledger.flops == 2 * heads * (c.Sq * c.Sk + seen) * c.D);
    CHECK(ledger.exps == heads * c.Sq * c.Sk);
    CHECK(ledger.rescales == 0);
    CHECK(ledger.shared_bytes_peak == f * (c.Sq * c.D + 16 * c.D + c.Sq * 16));  // all rows, 16 keys at a time
  }
}

// The smaller the SRAM, the fewer rows of Q at a time, and the more often K and V pass: as in a real matrix product.
TEST_CASE("a smaller SRAM lets K and V pass once more for every row tile") {
  const Case c{.B = 1, .H = 1, .Sq = 100, .Sk = 70, .D = 24};
  for (const std::int64_t Br : {100, 50, 33, 7}) {
    Inputs<float> in(c);
    Problem<float> p = in.problem(false);
    p.options.sram_bytes = 4 * (Br * 24 + 16 * 24 + Br * 16);
    const std::int64_t Tr = (100 + Br - 1) / Br, f = sizeof(float), S = c.Sq * c.Sk * f;
    const Run r = phase01::forward(p);
    check_traffic(r.ledger, {{"Q", c.Sq * c.D * f, 0},
                             {"K", Tr * c.Sk * c.D * f, 0},
                             {"V", Tr * c.Sk * c.D * f, 0},
                             {"O", 0, c.Sq * c.D * f},
                             {"S", S, S},
                             {"P", S, S}});
    CHECK(r.ledger.shared_bytes_peak == p.options.sram_bytes);
    const HbmBytes formula = phase01::phase.forward->features.hbm_bytes(p, {});
    CHECK(formula == HbmBytes{r.ledger.hbm_read_bytes(), r.ledger.hbm_written_bytes()});
  }
}

TEST_CASE("plain softmax equals safe softmax until it overflows") {
  Case c{.Sq = 40, .Sk = 60, .D = 32};
  const auto plain = [](const auto& p) { phase01::attention(p, phase01::Softmax::Plain); };
  for (const Input input : {Input::Normal, Input::Uniform, Input::Q4}) {
    c.input = input;
    check_forward<float>(c, plain, phase01::features);
    check_equals_previous<float>(c, plain, run);
  }
  c.input = Input::Q60;  // logits over 88.72: exp is inf, inf/inf is NaN
  CHECK(!examine<float>(c, plain, phase01::features).empty());
  check_forward<float>(c, run, phase01::features);

  RowMajor<float> S(1, 2);
  S << 88.0f, 0.0f;
  CHECK(phase01::plain_softmax(S)(0, 0) == 1.0f);
  S << 89.0f, 0.0f;
  CHECK(std::isnan(phase01::plain_softmax(S)(0, 0)));
  CHECK(phase01::safe_softmax(S)(0, 0) == 1.0f);
}

TEST_CASE("softmax of a row without keys is zero and of no columns empty") {
  const RowMajor<float> masked = RowMajor<float>::Constant(3, 5, -infinity);
  CHECK((phase01::safe_softmax(masked).array() == 0).all());
  CHECK(phase01::safe_softmax(RowMajor<float>(3, 0)).size() == 0);
}

// N = 1024, d = 64, scores not scaled: P and O, on uniform numbers (where outputs near 0.5 hide errors) and on normal
// ones (where they do not).
TEST_CASE("P and O at N=1024 d=64 unscaled") {
  constexpr std::int64_t N = 1024, d = 64;
  for (const Input input : {Input::Uniform, Input::Normal}) {
    const Case c{.B = 1, .H = 1, .Sq = N, .Sk = N, .D = d, .input = input, .scale = 1.0f};
    check_forward<float>(c, run, phase01::features);

    Inputs<float> in(c);
    const Eigen::Map<const RowMajor<float>> Q(in.q.view.data, N, d), K(in.k.view.data, N, d);
    const RowMajor<float> P = phase01::safe_softmax<float>(Q * K.transpose());
    std::vector<double> got(P.data(), P.data() + P.size()), want;
    double max_abs_logit = 0;
    for (std::int64_t i = 0; i < N; ++i) {
      std::vector<double> s(N);
      double m = -INFINITY, l = 0;
      for (std::int64_t j = 0; j < N; ++j) {
        for (std::int64_t k = 0; k < d; ++k) s[j] += static_cast<double>(Q(i, k)) * static_cast<double>(K(j, k));
        m = std::max(m, s[j]);
        max_abs_logit = std::max(max_abs_logit, std::abs(s[j]));
      }
      for (const double x : s) l += std::exp(x - m);
      for (const double x : s) want.push_back(std::exp(x - m) / l);
    }
    CHECK(distance(got, want, N).relative <= 2e-6 + 4 * 0x1p-24 * max_abs_logit);
  }
}
