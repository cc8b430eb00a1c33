// softmax_row_test.cpp: proof of phases/03-tiled-v1/softmax_row.hpp against the C++ library in double precision.
// Its corners: 0, -inf, NaN, results too small for fp32, rows of every length.
// ctest -L common
#include "phases/03-tiled-v1/softmax_row.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace flash;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), not_a_number = std::numeric_limits<float>::quiet_NaN();

float exp_of(float x) {
  exp_minus(&x, 1, 0);
  return x;
}

// n numbers from -14 to 12, and one more that is not the row's.
std::vector<float> numbers(std::int64_t n) {
  std::vector<float> row;
  for (std::int64_t i = 0; i <= n; ++i) row.push_back(12.0f - 0.37f * static_cast<float>(i * 11 % 71));
  return row;
}

}  // namespace

TEST_CASE("exp against the exact one") {
  double worst = 0;
  std::int64_t tried = 0;
  for (float x = -1e-30f; x > -87.3f; x *= 1.0001f, ++tried) {
    const double want = std::exp(static_cast<double>(x)), error = std::abs(exp_of(x) - want) / want / (2 - x);
    if (!(error <= worst)) worst = error;
  }
  CHECK(tried > 700'000);
  CHECK(worst <= 6e-8);
}

TEST_CASE("exp's corners") {
  CHECK(exp_of(0.0f) == 1);
  CHECK(exp_of(-0.0f) == 1);
  CHECK(exp_of(-inf) == 0);
  CHECK(exp_of(-1e30f) == 0);
  CHECK(exp_of(-88.0f) == 0);
  CHECK(std::isnan(exp_of(not_a_number)));
  CHECK(std::isnan(exp_of(-not_a_number)));
  float previous = exp_of(-87.0f);  // from where fp32 has no more full precision it falls to 0 and stays there
  for (float x = -87.0f; x > -89.0f; x -= 0.01f) {
    CHECK(exp_of(x) <= previous);
    previous = exp_of(x);
  }
  CHECK(previous == 0);
}

TEST_CASE("exp of rows of any length: the same numbers wherever they stand, nothing else touched, the sum of all") {
  for (std::int64_t n = 0; n <= 70; ++n) {
    const std::vector<float> in = numbers(n);
    std::vector<float> row = in;
    const float sum = exp_minus(row.data(), n, 12.0f);
    double want = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      CHECK(row[i] == exp_of(in[i] - 12.0f));
      want += row[i];
    }
    CHECK(row[n] == in[n]);
    CHECK(std::abs(sum - want) <= 1e-6 * want);
  }
}

TEST_CASE("scale and maximum of rows of any length, either sign") {
  for (const float scale : {0.125f, 1.0f, -0.3f, 0.0f})
    for (std::int64_t n = 0; n <= 70; ++n)
      for (std::int64_t at = 0; at < std::max<std::int64_t>(n, 1); ++at) {  // the largest stands everywhere once
        std::vector<float> in = numbers(n);
        if (n > 0) in[at] = scale < 0 ? -100.0f : 100.0f;
        std::vector<float> row = in;
        float want = -inf;
        for (std::int64_t i = 0; i < n; ++i) want = std::max(want, in[i] * scale);
        REQUIRE(scale_and_max(row.data(), n, scale) == want);
        for (std::int64_t i = 0; i < n; ++i) REQUIRE(row[i] == in[i] * scale);
        REQUIRE(row[n] == in[n]);
      }
  std::vector<float> hidden(9, -inf);
  CHECK(scale_and_max(hidden.data(), 9, 1.0f) == -inf);
}

TEST_CASE("NaN spoils the sum and its own place, not the maximum") {
  std::vector<float> row(37, -1.0f);
  row[20] = not_a_number;
  CHECK(scale_and_max(row.data(), 37, 2.0f) == -2);
  CHECK(std::isnan(exp_minus(row.data(), 37, -2.0f)));
  for (int i = 0; i < 37; ++i) CHECK(std::isnan(row[i]) == (i == 20));
}
