// pipeline_test.cpp: an attention kernel as Hopper has it is right, and the same to the bit, under every schedule and
// completion, and the checks have nothing to say.
// Run: ctest -L simt, or simt_pipeline_test
#include "tests/simt/pipeline.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

namespace {

using flash::Attended, flash::Completion, flash::MachineOptions, flash::Order;

double value_of(std::uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 0x3ff;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  return half >> 15 ? -size : size;
}

// Between -2 and 2.
std::vector<std::uint16_t> numbers(std::size_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> all(rows * 64);
  for (std::uint16_t& x : all) x = static_cast<std::uint16_t>((random() & 0x8fffu) | 0x3000u);
  return all;
}

}  // namespace

TEST_CASE("an attention kernel in Hopper's manner is right under every schedule") {
  const std::size_t rows = 150, keys = 200;
  const std::vector<std::uint16_t> q = numbers(rows, 1), k = numbers(keys, 2), v = numbers(keys, 3);
  const Attended first = flash::on_checked::attend(q, k, v, {});
  for (std::size_t row = 0; row < rows; ++row) {
    double o[64] = {}, sum = 0;
    for (std::size_t key = 0; key < keys; ++key) {
      double score = 0;
      for (std::size_t d = 0; d < 64; ++d) score += value_of(q[row * 64 + d]) * value_of(k[key * 64 + d]) / 8;
      sum += std::exp(score);
      for (std::size_t d = 0; d < 64; ++d) o[d] += std::exp(score) * value_of(v[key * 64 + d]);
    }
    // P and O are rounded to 11 bits, P relative to the row's maximum.
    for (std::size_t d = 0; d < 64; ++d)
      REQUIRE_MESSAGE(std::abs(value_of(first.o[row * 64 + d]) - o[d] / sum) < 2e-3, "row ", row, " column ", d);
  }
  const std::uint64_t tiles = 4, blocks = 2;
  CHECK(first.ledger.tensor_flops == blocks * 2 * tiles * 2 * (2 * 64 * 64 * 64));
  CHECK(first.ledger.wgmma_shared_bytes == blocks * 2 * tiles * (3 * 64 * 64 * 2));  // Q and K; V

  for (const Order order : {Order::forward, Order::reverse, Order::random})
    for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        const MachineOptions options{.order = order, .seed = seed, .completion = completion};
        const Attended other = flash::on_checked::attend(q, k, v, options);
        CHECK(other.findings.empty());
        CHECK(other.o == first.o);
        CHECK(other.ledger == first.ledger);
        CHECK(flash::on_sim::attend(q, k, v, options).o == first.o);
      }
}
