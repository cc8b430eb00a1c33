// contract_test.cpp: proof of tests/contract.hpp itself: its list covers what it claims, and each check can fail.
// A check that passes a wrong answer is worse than none, so wrong answers are tried here on purpose.
// ctest -L common
#include "tests/contract.hpp"

#include <doctest/doctest.h>

#include <set>

#include "tests/gradients.hpp"

using namespace flash;
using namespace flash::test;

namespace {

constexpr Features all{.meets = {Demand::Causal, Demand::Lse, Demand::AnyStride}};
const Case ordinary{.Sq = 20, .Sk = 30, .mask = Mask::bottom_right(), .layout = Layout::Padded};

// The reference itself, rounded, as if it were a phase.
template <class T>
void exact(const Problem<T>& p) {
  const Reference r = reference(p);
  std::size_t at = 0;
  for (std::int64_t b = 0; b < p.B(); ++b)
    for (std::int64_t h = 0; h < p.H(); ++h)
      for (std::int64_t s = 0; s < p.Sq(); ++s)
        for (std::int64_t d = 0; d < p.D(); ++d) p.o.row(b, h, s)[d] = from_float<T>(static_cast<float>(r.o[at++]));
  if (p.lse)
    for (std::size_t i = 0; i < r.lse.size(); ++i) p.lse[i] = static_cast<float>(r.lse[i]);
}

// Are there complaints about exact() after `spoil` has changed its result?
template <class T, class Spoil>
bool caught(const Case& c, const Spoil& spoil) {
  const auto forward = [&](const Problem<T>& p) {
    exact(p);
    spoil(p);
  };
  return !examine<T>(c, forward, all).empty();
}

}  // namespace

TEST_CASE("the list covers every pair of values") {
  const Domain domain;
  const std::vector<Case> cases = pairwise(domain);
  MESSAGE(cases.size() << " cases");
  CHECK(cases.size() < 260);  // the largest product of two parameters is 210
  // Counted independently of how the list is made: pairs of (length, input), (D, block), (causal, layout) …
  const auto pairs = [&](const auto& a, const auto& b) {
    std::set<std::pair<std::string, std::string>> seen;
    for (const Case& c : cases) seen.insert({a(c), b(c)});
    return seen.size();
  };
  const auto length = [](const Case& c) { return std::to_string(c.Sq) + "x" + std::to_string(c.Sk); };
  const auto input = [](const Case& c) { return std::string(name(c.input)); };
  const auto dim = [](const Case& c) { return std::to_string(c.D); };
  const auto block = [](const Case& c) { return std::to_string(c.block_q) + "x" + std::to_string(c.block_k); };
  const auto causal = [](const Case& c) { return std::string(name(c.mask)); };
  const auto layout = [](const Case& c) { return std::string(name(c.layout)); };
  const auto heads = [](const Case& c) { return std::to_string(c.B) + "x" + std::to_string(c.H); };
  CHECK(pairs(length, input) == domain.lengths.size() * domain.inputs.size());
  CHECK(pairs(length, dim) == domain.lengths.size() * domain.dims.size());
  CHECK(pairs(length, block) == domain.lengths.size() * domain.blocks.size());
  CHECK(pairs(length, causal) == domain.lengths.size() * domain.causals.size());
  CHECK(pairs(input, dim) == domain.inputs.size() * domain.dims.size());
  CHECK(pairs(input, causal) == domain.inputs.size() * domain.causals.size());
  CHECK(pairs(input, block) == domain.inputs.size() * domain.blocks.size());
  CHECK(pairs(block, causal) == domain.blocks.size() * domain.causals.size());
  CHECK(pairs(block, dim) == domain.blocks.size() * domain.dims.size());
  CHECK(pairs(layout, block) == domain.layouts.size() * domain.blocks.size());
  CHECK(pairs(layout, heads) == domain.layouts.size() * domain.batch_heads.size());
  CHECK(pairs(layout, causal) == domain.layouts.size() * domain.causals.size());
}

TEST_CASE("the list is the same every time") {
  const std::vector<Case> a = pairwise({}), b = pairwise({});
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(text(a[i]) == text(b[i]));
}

TEST_CASE_TEMPLATE("the exact answer passes on every case", T, float, half) {
  for (const Case& c : pairwise({}))
    check_forward<T>(
        c, [](const auto& p) { exact(p); }, all);
}

TEST_CASE_TEMPLATE("wrong answers are caught", T, float, half, bfloat16) {
  using P = Problem<T>;
  const T nan = from_float<T>(NAN);
  CHECK(!caught<T>(ordinary, [](const P&) {}));
  // One element NaN; one row twice as large; one element off by a few units in the last place of a 16-bit type.
  CHECK(caught<T>(ordinary, [&](const P& p) { p.o.row(1, 1, 19)[15] = nan; }));
  CHECK(caught<T>(ordinary, [](const P& p) {
    for (int d = 0; d < 16; ++d) p.o.row(1, 0, 7)[d] = from_float<T>(2 * to_float(p.o.row(1, 0, 7)[d]));
  }));
  CHECK(caught<T>(ordinary, [](const P& p) {
    for (int s = 0; s < 20; ++s) p.o.row(0, 1, s)[3] = from_float<T>(1.02f * to_float(p.o.row(0, 1, s)[3]));
  }));
  // A row that is not written, an element between rows and one after the end that are.
  CHECK(caught<T>(ordinary, [&](const P& p) { fill_with_poison(p.o.row(0, 0, 0), 16 * sizeof(T)); }));
  CHECK(caught<T>(ordinary, [](const P& p) { p.o.row(0, 0, 0)[16] = from_float<T>(0.0f); }));
  CHECK(caught<T>(ordinary, [](const P& p) { p.o.data[p.o.span()] = from_float<T>(0.0f); }));
  CHECK(caught<T>(ordinary, [](const P& p) { p.o.data[-1] = from_float<T>(0.0f); }));
  // An input that is written to.
  CHECK(caught<T>(ordinary, [](const P& p) { const_cast<T*>(p.k.data)[0] = from_float<T>(0.5f); }));
  // LSE: off by little more than the bar, in base 2, NaN, past its end.
  CHECK(caught<T>(ordinary, [](const P& p) { p.lse[5] += 1e-5f; }));
  CHECK(caught<T>(ordinary, [](const P& p) {
    for (int i = 0; i < 80; ++i) p.lse[i] *= 1.44269504f;
  }));
  CHECK(caught<T>(ordinary, [](const P& p) { p.lse[79] = NAN; }));
  CHECK(caught<T>(ordinary, [](const P& p) { p.lse[80] = 0; }));
}

TEST_CASE("rows without keys are zero and minus infinity, nothing else") {
  const Case c{.Sq = 9, .Sk = 4, .mask = Mask::bottom_right()};  // rows 0 … 4 see nothing
  using P = Problem<float>;
  CHECK(!caught<float>(c, [](const P&) {}));
  CHECK(caught<float>(c, [](const P& p) { p.o.row(0, 0, 0)[0] = 1e-30f; }));
  CHECK(caught<float>(c, [](const P& p) { p.lse[0] = -1e30f; }));
  CHECK(caught<float>(c, [](const P& p) { p.lse[0] = INFINITY; }));
}

TEST_CASE("two runs with other bits are caught") {
  int run = 0;
  const auto forward = [&](const Problem<float>& p) {
    exact(p);
    if (++run == 2) p.o.data[0] = std::nextafterf(p.o.data[0], 1);
  };
  CHECK(!examine<float>(ordinary, forward, all).empty());
}

TEST_CASE("keys that nobody sees are poison") {
  const Inputs<float> in({.Sq = 5, .Sk = 9, .mask = Mask::top_left()});
  CHECK(!std::isnan(in.k.view.row(1, 1, 4)[0]));
  CHECK(std::isnan(in.k.view.row(1, 1, 5)[0]));
  CHECK(std::isnan(in.v.view.row(0, 0, 8)[15]));
}

TEST_CASE("distance") {
  const std::vector<double> want = {3, 4, 0, 0, 1, 0};
  CHECK(distance(want, want, 2).relative == 0);
  const Distance d = distance({3, 4, 0, 0, 1, 0.5}, want, 2);
  CHECK(d.worst_row == doctest::Approx(0.5));
  CHECK(d.relative == doctest::Approx(0.5 / std::sqrt(26.0)));
  CHECK(d.max_abs == doctest::Approx(0.5));
  CHECK(std::isinf(distance({3, 4, 1e-45, 0, 1, 0}, want, 2).worst_row));  // where 0 is right, only 0 is
  CHECK(std::isnan(distance({3, 4, 0, 0, NAN, 0}, want, 2).relative));
  CHECK(std::isnan(distance({3, 4, 0, NAN, 1, 0}, want, 2).worst_row));
  CHECK(rounding_floor<float>({1.0, 0.5}, 2).relative == 0);
  CHECK(rounding_floor<half>({1.0 + 0x1p-12}, 1).relative == doctest::Approx(0x1p-12).epsilon(1e-3));
}

TEST_CASE("the worst of three errors is NaN if any is") {
  const GradientError small{.share = 0.5}, large{.share = 2}, nan{.share = std::nan("")};
  CHECK(GradientErrors{small, large, small}.worst_share() == 2);
  for (const GradientErrors& e : {GradientErrors{nan, small, large}, {small, nan, large}, {small, large, nan}})
    CHECK_FALSE(e.worst_share() <= 1e9);
}

// One row sees one key, P = 1: the exact dS and with it dQ is dP - δ = 0. Both are Σ dO V, in fp32 by whatever order,
// and where that cancels what is left is small beside the terms and large beside the sum.
TEST_CASE("gradients may miss by what the terms of dP and delta are off, and not by more") {
  constexpr std::int64_t D = 128;
  constexpr std::array<std::int64_t, 4> shape{1, 1, 1, D};
  int missed = 0;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    std::vector<float> q(D), k(D), v(D), dout(D), dq(D), dk(D), dv(D);
    std::uint32_t stream = 0;
    for (auto* x : {&q, &k, &v, &dout}) {
      const Random random(seed, stream++);
      for (std::size_t i = 0; i < D; ++i) (*x)[i] = random.normal(i);
    }
    GradientProblem<float> p;
    p.q = dense_view<const float>(q.data(), shape), p.k = dense_view<const float>(k.data(), shape);
    p.v = dense_view<const float>(v.data(), shape), p.dout = dense_view<const float>(dout.data(), shape);
    p.dq = dense_view(dq.data(), shape), p.dk = dense_view(dk.data(), shape), p.dv = dense_view(dv.data(), shape);
    float up = 0, down = 0, size = 0;
    for (std::size_t i = 0; i < D; ++i) {
      up += dout[i] * v[i], down += dout[D - 1 - i] * v[D - 1 - i];
      size += std::abs(dout[i] * v[i]);
      dv[i] = dout[i];
    }
    const auto share = [&](float ds) {
      for (std::size_t i = 0; i < D; ++i) dq[i] = p.scale() * ds * k[i], dk[i] = p.scale() * ds * q[i];
      return gradient_errors(p, gradient_reference(p), Input::Normal, all).worst_share();
    };
    CHECK(share(up - down) <= 1);
    missed += share(1e-6f * size) > 1;
  }
  CHECK(missed == 100);
}
