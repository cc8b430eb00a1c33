// random_test.cpp: proof of phases/arrays/random.hpp: Philox as published, the same numbers everywhere, and the
// shapes of the distributions that the contract names.
// ctest -L common
#include "phases/arrays/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

using namespace flash;

TEST_CASE("Philox-4x32-10 gives the published answers") {  // Random123, kat_vectors
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers are the upper 24 bits of the counter's block") {
  const Random random(0, 0);
  CHECK(random.uniform(0) == static_cast<float>(0x6627e8) * 0x1p-24f);
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const float u = random.uniform(i);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    REQUIRE(u * 0x1p24f == std::floor(u * 0x1p24f));
  }
}

TEST_CASE("element i depends on seed, stream and i alone") {
  const Random a(5, 1), b(5, 1), other_stream(5, 2), other_seed(6, 1), far_seed((1ull << 32) + 5, 1);
  std::vector<float> forward, backward;
  for (int i = 0; i < 100; ++i) forward.push_back(a.normal(static_cast<std::uint64_t>(i)));
  for (int i = 99; i >= 0; --i) backward.push_back(b.normal(static_cast<std::uint64_t>(i)));
  std::reverse(backward.begin(), backward.end());
  CHECK(forward == backward);
  CHECK(a.normal(7) != other_stream.normal(7));
  CHECK(a.normal(7) != other_seed.normal(7));
  CHECK(a.normal(7) != far_seed.normal(7));
  CHECK(a.normal(7) != a.normal(7 + (1ull << 32)));  // 64-bit positions
  CHECK(a.normal(7) != a.normal(7, 1));
}

// First two moments and the share beyond two standard deviations, from 2^16 draws: bounds of four standard errors.
TEST_CASE("moments") {
  constexpr int n = 1 << 16;
  struct Want {
    Distribution d;
    double mean, variance, mean_bound, variance_bound;
  };
  // Outliers: variance 1 + 0.001 · 100 = 1.1; the variance of the square is dominated by 3 · 0.001 · 10^4 = 30.
  for (const Want& w : {Want{Distribution::Normal, 0, 1, 4.0 / 256, 4 * std::sqrt(2.0) / 256},
                        Want{Distribution::Uniform, 0.5, 1.0 / 12, 4 * 0.289 / 256, 4 * 0.0746 / 256},
                        Want{Distribution::Shifted, 1, 1, 4.0 / 256, 4 * std::sqrt(2.0) / 256},
                        Want{Distribution::Outliers, 0, 1.1, 4 * 1.05 / 256, 4 * 5.7 / 256}}) {
    INFO(std::string(name(w.d)));
    const Random random(11, 3);
    double sum = 0, squares = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      const double x = draw(random, w.d, i);
      sum += x;
      squares += (x - w.mean) * (x - w.mean);
    }
    CHECK(std::abs(sum / n - w.mean) <= w.mean_bound);
    CHECK(std::abs(squares / n - w.variance) <= w.variance_bound);
  }
}

TEST_CASE("tails and independence of normal numbers") {
  constexpr int n = 1 << 16;
  const Random a(3, 0), b(3, 1);
  double beyond = 0, across = 0, next = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    beyond += std::abs(a.normal(i)) > 2;
    across += static_cast<double>(a.normal(i)) * static_cast<double>(b.normal(i));  // between streams
    next += static_cast<double>(a.normal(i)) * static_cast<double>(a.normal(i + 1));
  }
  CHECK(std::abs(beyond / n - 0.0455) <= 4 * 0.2084 / 256);
  CHECK(std::abs(across / n) <= 4.0 / 256);
  CHECK(std::abs(next / n) <= 4.0 / 256);
}

TEST_CASE("equal numbers are equal and denormals are denormal") {
  const Random random(1, 0);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    REQUIRE(draw(random, Distribution::Equal, i) == 1.0f);
    const float x = draw(random, Distribution::Denormals, i);
    REQUIRE(x != 0);
    REQUIRE(std::abs(x) < 0x1p-126f);
  }
}

TEST_CASE("one outlier in a thousand") {
  const Random random(2, 0);
  int outliers = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) outliers += draw(random, Distribution::Outliers, i) != random.normal(i);
  CHECK(outliers > 60);
  CHECK(outliers < 140);
}
