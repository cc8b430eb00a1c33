// phase_02_test.cpp: proof of phase 02: one pass over the keys gives the same rows, and merge is a true merge.
// Any split of the keys, in any order, joined by any tree, gives the row of phase 01.
// ./flash test 02
#include <doctest/doctest.h>

#include <random>

#include "phases/01-naive/phase.hpp"
#include "phases/02-online-softmax/attention.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;
using phase02::add_key;
using phase02::merge;
using phase02::State;

const Phase& flash::test::phase_under_test() {
  return phase02::phase;
}

namespace {

const auto run = [](const auto& p) { phase02::forward(p); };

constexpr std::int64_t D = 6;

// One row's keys: scores and values. Every seventh key is masked.
struct Row {
  std::vector<float> s;
  std::vector<Eigen::VectorXf> v;

  Row(int keys, std::uint64_t seed, float spread) {
    const Random scores(seed, 0), values(seed, 1);
    for (int j = 0; j < keys; ++j) {
      s.push_back(j % 7 == 3 ? -infinity : spread * scores.normal(static_cast<std::uint64_t>(j)));
      v.push_back(Eigen::VectorXf(D));
      for (std::int64_t d = 0; d < D; ++d) v.back()[d] = values.normal(static_cast<std::uint64_t>(j * D + d));
    }
  }

  State state(const std::vector<int>& keys) const {
    State state;
    for (const int j : keys) add_key(state, s[j], v[j]);
    return state;
  }

  // The row of O and the LSE, in fp64.
  std::pair<std::vector<double>, double> exact() const {
    double m = -INFINITY, l = 0;
    for (const float x : s) m = std::max(m, static_cast<double>(x));
    std::vector<double> o(D);
    for (std::size_t j = 0; j < s.size(); ++j) {
      if (s[j] == -infinity) continue;
      const double e = std::exp(s[j] - m);
      l += e;
      for (std::int64_t d = 0; d < D; ++d) o[d] += e * static_cast<double>(v[j][d]);
    }
    for (double& x : o) x /= l;
    return {o, m + std::log(l)};
  }

  void check(const State& state) const {
    const auto [o, lse] = exact();
    const Eigen::VectorXf got = state.output();
    REQUIRE(got.size() == D);
    CHECK(distance(std::vector<double>(got.begin(), got.end()), o, D).relative <= 1e-5);  // one row: the row's bar
    CHECK(std::abs(static_cast<double>(state.lse()) - lse) <= lse_bar(lse));
  }
};

bool same(const State& a, const State& b) {
  return a.m == b.m && a.l == b.l && a.o.size() == b.o.size() && a.o == b.o;
}

std::vector<int> iota(int n) {
  std::vector<int> keys(static_cast<std::size_t>(n));
  for (int j = 0; j < n; ++j) keys[j] = j;
  return keys;
}

}  // namespace

TEST_CASE_TEMPLATE("ledger", T, float, half, bfloat16) {
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
    for (const bool want_lse : {false, true}) {
      const Case c{.B = 2, .H = 3, .Sq = 53, .Sk = 37, .D = 24, .mask = causal};
      Inputs<T> in(c);
      const Ledger ledger = phase02::forward(in.problem(want_lse)).ledger;
      const std::int64_t heads = c.B * c.H, e = sizeof(T), f = sizeof(float);
      std::int64_t pairs = 0;  // (query, key) pairs that are not masked
      for (std::int64_t i = 0; i < c.Sq; ++i)
        for (std::int64_t j = 0; j < c.Sk; ++j) pairs += sees(causal, i, j, c.Sq, c.Sk);
      // K and V pass once per query row, as far as the row sees.
      check_traffic(ledger, {{"Q", heads * c.Sq * c.D * e, 0},
                             {"K", heads * pairs * c.D * e, 0},
                             {"V", heads * pairs * c.D * e, 0},
                             {"O", 0, heads * c.Sq * c.D * e},
                             {"LSE", 0, want_lse ? heads * c.Sq * f : 0}});
      CHECK(ledger.flops == 4 * heads * pairs * c.D);
      CHECK(ledger.exps == 2 * heads * pairs);               // p and the rescaling factor, per key
      CHECK(ledger.rescales == heads * (pairs + c.Sq));      // per key, and the division at the end
      CHECK(ledger.shared_bytes_peak == (4 * c.D + 1) * f);  // q_i, k_j, v_j, o_i and one LSE: no tile, no S
    }
}

TEST_CASE("an SRAM too small for one row is refused") {
  Inputs<float> in({.Sq = 3, .Sk = 4, .D = 64, .sram_bytes = 700});
  CHECK_THROWS_WITH_AS(run(in.problem(true)),
                       "tile v_j [1, 64] needs 256 bytes of SRAM; 188 of 700 are free; use smaller blocks or a larger "
                       "--sram",
                       Error);
  CHECK(is_poison(in.o.memory.data(), in.o.memory.size() * sizeof(float)));
}

TEST_CASE("the empty state is merge's identity") {
  const Row row(20, 1, 3);
  const State state = row.state(iota(20)), empty;
  CHECK(same(merge(state, empty), state));
  CHECK(same(merge(empty, state), state));
  CHECK(merge(empty, empty).lse() == -infinity);
  CHECK(merge(empty, empty).l == 0);
}

TEST_CASE("a state grows from the empty one") {
  State state;
  add_key(state, -infinity, Eigen::VectorXf::Constant(D, NAN));  // masked: not even looked at
  CHECK(state.lse() == -infinity);
  const Eigen::VectorXf v = Eigen::VectorXf::LinSpaced(D, -1, 1);
  add_key(state, -2e6f, v);  // the first key is everything, however low its score
  CHECK(state.l == 1);
  CHECK(state.m == -2e6f);
  REQUIRE(state.o.size() == D);
  CHECK(state.output() == v);
}

TEST_CASE("fully masked parts change nothing") {
  const Row row(20, 2, 3);
  const State state = row.state(iota(20));
  State masked;
  for (int j = 0; j < 9; ++j) add_key(masked, -infinity, row.v[j]);
  CHECK(same(merge(state, masked), state));
  CHECK(same(merge(masked, state), state));
  masked.o = Eigen::VectorXf::Zero(D);  // the same with the zeros written out
  CHECK(same(merge(state, masked), state));
  CHECK(same(merge(masked, state), state));
}

TEST_CASE("merge is commutative and associative") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Row row(60, seed, seed % 2 ? 1.0f : 30.0f);
    std::vector<int> a, b, c;
    for (int j = 0; j < 60; ++j) (j % 3 == 0 ? a : j % 3 == 1 ? b : c).push_back(j);
    const State A = row.state(a), B = row.state(b), C = row.state(c);
    row.check(merge(merge(A, B), C));
    row.check(merge(A, merge(B, C)));
    row.check(merge(merge(B, A), C));
    row.check(merge(C, merge(B, A)));
    CHECK(merge(A, B).m == merge(B, A).m);
    CHECK(merge(merge(A, B), C).m == merge(A, merge(B, C)).m);
  }
}

TEST_CASE("any split in any order by any tree gives the same row") {
  std::mt19937 engine(7);  // its numbers are fixed by the standard
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(engine() % n); };
  for (std::uint64_t trial = 0; trial < 300; ++trial) {
    const int n = 1 + static_cast<int>(below(150));
    const Row row(n, 1000 + trial, trial % 3 == 0 ? 40.0f : 2.0f);
    std::vector<int> keys = iota(n);
    for (std::size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[below(i)]);
    // Deal the keys to parts, some of which stay empty.
    std::vector<std::vector<int>> parts(1 + below(12));
    for (const int j : keys) parts[below(parts.size())].push_back(j);
    std::vector<State> states;
    for (const auto& part : parts) states.push_back(row.state(part));
    // Join any two until one is left: a random tree.
    while (states.size() > 1) {
      const std::size_t i = below(states.size());
      const State a = states[i];
      states.erase(states.begin() + static_cast<std::ptrdiff_t>(i));
      State& b = states[below(states.size())];
      b = merge(a, b);
    }
    INFO("trial " << trial << ", " << n << " keys");
    row.check(states[0]);
  }
}
