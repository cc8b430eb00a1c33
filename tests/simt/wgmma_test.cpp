// wgmma_test.cpp: products by wgmma equal exact sums, in every form and under every schedule, and are counted.
// Its bits: conformance_test.cpp. Its findings: museum_test.cpp.
// Run: ctest -L simt, or simt_wgmma_test
#include "tests/simt/wgmma.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>

#include "sim/core/tensor_core.hpp"
#include "sim/core/warpgroup.hpp"

namespace {

using flash::Completion, flash::MachineOptions, flash::Order, flash::WgmmaResult, flash::WgmmaShape;

// Small whole numbers: every sum of products is exact, in any order.
struct Operands {
  std::vector<std::uint16_t> a, b;
  std::vector<float> c, d;  // d = c + a b
};
std::uint16_t bits_of(int value, bool bfloat16) {
  if (bfloat16) return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
  if (value == 0) return 0;
  const int size = std::abs(value), exponent = static_cast<int>(std::bit_width(static_cast<unsigned>(size))) - 1;
  return static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 15) << 10 |
                                    (size << (10 - exponent) & 0x3ff));
}
Operands operands(const WgmmaShape& shape) {
  std::mt19937 random(static_cast<unsigned>(shape.n * 1000 + shape.k));
  const auto number = [&] { return static_cast<int>(random() % 17) - 8; };
  const auto rows = [&](int count) {
    std::vector<int> values(static_cast<std::size_t>(count));
    for (int& value : values) value = number();
    return values;
  };
  const std::vector<int> a = rows(64 * shape.k), b = rows(shape.k * shape.n);
  Operands all;
  for (const int value : a) all.a.push_back(bits_of(value, shape.bfloat16));
  for (const int value : b) all.b.push_back(bits_of(value, shape.bfloat16));
  for (int i = 0; i < 64 * shape.n; ++i) {
    all.c.push_back(static_cast<float>(number()));
    int sum = static_cast<int>(all.c.back());
    for (int k = 0; k < shape.k; ++k)
      sum += a[static_cast<std::size_t>(i / shape.n * shape.k + k)] *
             b[static_cast<std::size_t>(k * shape.n + i % shape.n)];
    all.d.push_back(static_cast<float>(sum));
  }
  return all;
}

std::vector<WgmmaShape> shapes() {
  std::vector<WgmmaShape> all;
  for (const bool bfloat16 : {false, true})
    for (const bool registers : {false, true})
      for (const bool mn_major : {false, true})
        for (const int n : {64, 80, 96, 128, 256})
          all.push_back({bfloat16, registers, mn_major, n, n == 80 ? 128 : 64});
  return all;
}

std::string name(const WgmmaShape& s) {
  return std::string(s.bfloat16 ? "bfloat16" : "half") + (s.a_in_registers ? " RS" : " SS") +
         (s.b_mn_major ? " MN" : " K") + " n " + std::to_string(s.n);
}

}  // namespace

TEST_CASE("every form gives the exact product") {
  for (const WgmmaShape& shape : shapes()) {
    CAPTURE(name(shape));
    const Operands of = operands(shape);
    CHECK(flash::on_sim::multiply(shape, of.a, of.b, of.c, {}).d == of.d);
    CHECK(flash::on_checked::multiply(shape, of.a, of.b, of.c, {}).d == of.d);
  }
}
