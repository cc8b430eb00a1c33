// wgmma_test.cpp: products by wgmma equal exact sums, in every form and under every schedule, and are counted.
// Its bits: conformance_test.cpp. Its findings: museum_test.cpp.
// Run: ctest -L simt, or simt_wgmma_test
#include "tests/simt/wgmma.hpp"

#include <doctest/doctest.h>

#include <algorithm>
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
  struct A {
    bool in_registers, mn_major;
  };
  for (const bool bfloat16 : {false, true})
    for (const A a : {A{false, false}, A{false, true}, A{true, false}})
      for (const bool mn_major : {false, true})
        for (const int n : {32, 64, 80, 96, 128, 192, 256})
          all.push_back({bfloat16, a.in_registers, a.mn_major, mn_major, n, n == 80 ? 128 : 64});
  return all;
}

std::string name(const WgmmaShape& s) {
  return std::string(s.bfloat16 ? "bfloat16" : "half") +
         (s.a_in_registers ? " RS"
          : s.a_mn_major   ? " SS MN"
                           : " SS K") +
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

TEST_CASE("products give the same bits and counters under every schedule") {
  for (const WgmmaShape& shape : {WgmmaShape{.bfloat16 = true, .n = 96, .k = 128, .warpgroups = 2},
                                  WgmmaShape{.a_mn_major = true, .b_mn_major = true, .n = 64, .warpgroups = 2},
                                  WgmmaShape{.a_in_registers = true, .b_mn_major = true, .n = 128, .warpgroups = 2}}) {
    CAPTURE(name(shape));
    const Operands of = operands(shape);
    std::vector<float> twice = of.d;
    twice.insert(twice.end(), of.d.begin(), of.d.end());
    const WgmmaResult first = flash::on_checked::multiply(shape, of.a, of.b, of.c, {});
    for (const Order order : {Order::forward, Order::reverse, Order::random})
      for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
          const MachineOptions options{.order = order, .seed = seed, .completion = completion};
          const WgmmaResult other = flash::on_checked::multiply(shape, of.a, of.b, of.c, options);
          CHECK(other.d == twice);
          CHECK(other.ledger == first.ledger);
          CHECK(flash::on_sim::multiply(shape, of.a, of.b, of.c, options).d == twice);
        }
  }
}

TEST_CASE("products are counted: FLOP, and the bytes that they read from shared memory") {
  for (const WgmmaShape& shape : shapes()) {
    CAPTURE(name(shape));
    const Operands of = operands(shape);
    const flash::Ledger ledger = flash::on_checked::multiply(shape, of.a, of.b, of.c, {}).ledger;
    const auto n = static_cast<std::uint64_t>(shape.n), k = static_cast<std::uint64_t>(shape.k);
    CHECK(ledger.tensor_flops == 2 * 64 * n * k);
    CHECK(ledger.flops == 0);
    CHECK(ledger.wgmma_shared_bytes == 2 * k * (n + (shape.a_in_registers ? 0 : 64)));
    CHECK(flash::on_sim::multiply(shape, of.a, of.b, of.c, {}).ledger.wgmma_shared_bytes == 0);
  }
}

TEST_CASE("tiles may be __shared__ variables") {
  std::vector<float> want;
  for (int i = 0; i < 64 * 64; ++i) want.push_back(static_cast<float>(64 * (i / 64 + 1)));
  CHECK(flash::on_sim::multiply_variables({}).d == want);
  CHECK(flash::on_checked::multiply_variables({}).d == want);
}

// A warp's 512 bytes lie in 16 sectors; an atomic reads and writes them.
TEST_CASE("a vector is added in one request, and element by element") {
  std::vector<float> want;
  for (int i = 0; i < 256; ++i) want.push_back(static_cast<float>(i + 3));
  for (int t = 0; t < 64; ++t) want.push_back(static_cast<float>(4 * t + 4));
  CHECK(flash::on_sim::add_vectors({}).d == want);
  const WgmmaResult checked = flash::on_checked::add_vectors({});
  CHECK(checked.d == want);
  const flash::ArrayTraffic& d = checked.ledger.arrays[0];
  CHECK(d == flash::ArrayTraffic{"d", 2048, 2048, 4, 64, 4, 64});
}

// As the layouts are written down: a row of 128 bytes is 8 chunks; in row r chunk c lies at c ^ r % 8.
TEST_CASE("a descriptor means the addresses that the hardware reads") {
  using namespace flash::simt;
  const auto swizzled = [](unsigned address) { return address ^ (address / 128 % 8) * 16; };
  // K-major: `leading` has no meaning, the eight rows of a group follow one another.
  for (const unsigned leading : {0u, 16u, 1232u}) {
    const DescribedMatrix k_major{4096 + 64, leading, 2048, 0, 1};
    const std::vector<unsigned> chunks = chunks_of(k_major, 80, false);
    REQUIRE(chunks.size() == 160);
    for (unsigned row = 0; row < 80; ++row)
      for (unsigned half = 0; half < 2; ++half)
        CHECK(chunks[2 * row + half] == swizzled(4096 + row / 8 * 2048 + row % 8 * 128 + 64 + half * 16));
  }
  const DescribedMatrix mn_major{2048, 8192, 1024, 0, 1};
  const std::vector<unsigned> chunks = chunks_of(mn_major, 96, true);
  REQUIRE(chunks.size() == 192);
  for (unsigned k = 0; k < 16; ++k)
    for (unsigned j = 0; j < 12; ++j)
      CHECK(chunks[k * 12 + j] == swizzled(2048 + j / 8 * 8192 + k / 8 * 1024 + k % 8 * 128 + j % 8 * 16));
  // A that is MN-major fits one panel: `leading` has no meaning.
  for (const unsigned leading : {0u, 16u, 1232u}) {
    const DescribedMatrix a{8192, leading, 1024, 0, 1};
    const std::vector<unsigned> rows = chunks_of(a, 64, true);
    REQUIRE(rows.size() == 128);
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned j = 0; j < 8; ++j) CHECK(rows[k * 8 + j] == swizzled(8192 + k * 128 + j * 16));
  }
  // The bits.
  const DescribedMatrix fields = described(0x4000004000000000u | 512u << 16 | 128u);
  CHECK(fields.start == 2048);
  CHECK(fields.leading == 8192);
  CHECK(fields.stride == 1024);
  CHECK(fields.base_offset == 0);
  CHECK(fields.swizzle == 1);
  CHECK(described(std::uint64_t{5} << 49).base_offset == 5);
}

TEST_CASE("a descriptor begins in the first row of the swizzle's pattern") {
  const flash::MachineOptions options{.threads = 1, .keep_going = true};
  for (const unsigned start : {0u, 96u, 112u, 1024u, 128u, 144u, 1152u}) {
    CAPTURE(start);
    for (const auto& found :
         {flash::on_sim::multiply_from(options, start), flash::on_checked::multiply_from(options, start)}) {
      REQUIRE(found.size() == (start % 1024 < 128 ? 0 : 1));
      for (const flash::Finding& one : found)
        CHECK(one.text.starts_with("misaligned: wgmma: A's descriptor: start " + std::to_string(start) + ", "));
    }
  }
}

TEST_CASE("setmaxnreg is for one number of registers, whichever lane differs") {
  const auto found = flash::on_sim::ask_differently({.threads = 1, .keep_going = true});
  REQUIRE(found.size() == 1);
  CHECK(found[0].text.starts_with(
      "warpgroup operation: setmaxnreg: the threads of a warpgroup give different numbers of registers\n"));
  const auto checked = flash::on_checked::ask_differently({.threads = 1, .keep_going = true});
  REQUIRE(checked.size() == 1);  // which sees two places in the source
  CHECK(checked[0].kind == "warp operation");
}

// Exponents near and far, cancelling, zeros, infinities: the wide product is the same sum of 17 terms as mma's.
TEST_CASE("a product of 64 rows gives the bits of the tensor core's rule") {
  using namespace flash::simt;
  std::mt19937_64 random(3);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  for (const MmaType type : {MmaType::half, MmaType::bfloat16}) {
    const unsigned fraction = type == MmaType::half ? 10 : 7, fields = 1u << (15 - fraction);
    std::array<int, 2> finite{};  // elements of D that are not, and are
    for (int i = 0; i < 60; ++i) {
      const int columns = 8 * static_cast<int>(1 + below(32));
      const unsigned width = 1 + below(i % 2 ? 8 : fields - 1), first = below(fields - 1), zeros = below(3);
      const auto number = [&] {
        if (below(8) < zeros) return 0u;
        const unsigned field =
            below(i % 4 == 0 ? 500 : 1u << 30) == 0 ? fields - 1 : (first + below(width)) % (fields - 1);
        return below(2) << 15 | field << fraction | below(1u << fraction);
      };
      std::uint16_t a[kMmaDepth * 64];
      std::vector<std::uint16_t> b(static_cast<std::size_t>(columns * kMmaDepth));
      alignas(32) static float d[256 * 64], c[256 * 64];
      for (auto& x : a) x = static_cast<std::uint16_t>(number());
      for (auto& x : b) x = static_cast<std::uint16_t>(number());
      for (float& x : c) x = std::bit_cast<float>(below(2) << 31 | below(255) << 23 | below(1u << 23));
      std::copy(std::begin(c), std::end(c), std::begin(d));
      wgmma_m64nNk16(a, b.data(), d, columns, type);
      for (int n = 0; n < columns; ++n)
        for (int row = 0; row < 64; ++row) {
          std::uint16_t of_a[kMmaDepth], of_b[kMmaDepth];
          for (int k = 0; k < kMmaDepth; ++k)
            of_a[k] = a[k * 64 + row], of_b[k] = b[static_cast<std::size_t>(n * kMmaDepth + k)];
          const float want = mma_element(of_a, of_b, c[n * 64 + row], type), got = d[n * 64 + row];
          if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(want))
            FAIL("product " << i << ", row " << row << ", column " << n << ": " << got << ", not " << want);
          ++finite[std::isfinite(want)];
        }
    }
    for (const int elements : finite) CHECK(elements > 1000);
  }
}
