// tensor_core.cpp: an element of D is one sum of 17 terms, 16 products and C's element, with one rounding at the end.
// Hopper's rule, found by probing (Li et al., MMA-Sim; Khattak and Mikaitis, arXiv 2512.07004): all terms are aligned
// to the largest exponent, each is truncated to 25 fractional bits, their sum is exact, the result is rounded towards
// zero. A product's exponent is the sum of its factors', so its significand lies in [1, 4). The H200's own results:
// docs/results/conformance-h200.txt, families mma_*.
// Use: tensor_core.hpp.
#include "sim/core/tensor_core.hpp"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace flash::simt {
namespace {

constexpr int kRows = 16, kColumns = 8, kDepth = 16;
constexpr int kFractionalBits = 25;
constexpr int kLeastExponent = -126;  // of fp32; a zero counts as this
constexpr int kOfZero = -10000;       // no product of a zero decides the exponent
constexpr std::uint32_t kNaN = 0x7fffffff;

// A 16-bit element as value and exponent: value = significand · 2^exponent, 1 <= |significand| < 2 unless subnormal.
struct Element {
  double value;
  int exponent;
};

Element element(std::uint32_t bits, MmaType type) {
  const int fraction_bits = type == MmaType::half ? 10 : 7, bias = type == MmaType::half ? 15 : 127;
  const int field = static_cast<int>(bits >> fraction_bits) & (type == MmaType::half ? 31 : 255);
  const int fraction = static_cast<int>(bits) & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 & 1 ? -1 : 1;
  if (field == (type == MmaType::half ? 31 : 255))
    return {fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity(), 0};
  const int exponent = (field ? field : 1) - bias;
  const double value = sign * std::ldexp(fraction + (field ? 1 << fraction_bits : 0), exponent - fraction_bits);
  return {value, value == 0 ? kOfZero : exponent};
}

int exponent_of(float x) {
  const int field = static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23) & 255;
  return (field ? field : 1) - 127;
}

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// sum · 2^exponent as fp32, rounded towards zero.
float rounded(std::int64_t sum, int exponent) {
  if (sum == 0) return 0;
  const std::uint64_t magnitude = static_cast<std::uint64_t>(std::abs(sum));
  const int top = std::bit_width(magnitude) - 1 + exponent;  // the exponent of the result
  if (top > 127) return sum > 0 ? HUGE_VALF : -HUGE_VALF;
  const int cut = (top < kLeastExponent ? kLeastExponent : top) - 23 - exponent;  // bits that fp32 has no place for
  const std::uint64_t kept = cut <= 0 ? magnitude : cut < 64 ? magnitude >> cut << cut : 0;
  const double result = std::ldexp(static_cast<double>(kept), exponent);
  return static_cast<float>(sum > 0 ? result : -result);
}

// Is the sum NaN or infinite whatever its finite terms are? The plain sum of products tells.
bool is_special(float c, const double* products, std::uint32_t& bits) {
  double sum = c;
  for (int k = 0; k < kDepth; ++k) sum += products[k];
  if (std::isfinite(sum)) return false;
  bits = std::isnan(sum) ? kNaN : std::bit_cast<std::uint32_t>(static_cast<float>(sum));
  return true;
}

}  // namespace

void mma_m16n8k16(const std::array<MmaRegisters, 32>& lanes, MmaType type) {
  double a[kRows][kDepth], b[kDepth][kColumns];
  int a_exponent[kRows][kDepth], b_exponent[kDepth][kColumns];
  float c[kRows][kColumns];
  bool special = false;  // some input is NaN or infinite
  for (int lane = 0; lane < 32; ++lane) {
    const MmaRegisters& registers = lanes[static_cast<std::size_t>(lane)];
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int r = 0; r < 4; ++r)
      for (int i = 0; i < 2; ++i) {
        const int row = group + r % 2 * 8, column = pair + i + r / 2 * 8;
        const Element e = element(registers.a[r] >> 16 * i & 0xffff, type);
        a[row][column] = e.value, a_exponent[row][column] = e.exponent;
        special |= !std::isfinite(e.value);
      }
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < 2; ++i) {
        const int row = pair + i + r * 8;
        const Element e = element(registers.b[r] >> 16 * i & 0xffff, type);
        b[row][group] = e.value, b_exponent[row][group] = e.exponent;
        special |= !std::isfinite(e.value);
      }
    for (int i = 0; i < 4; ++i) {
      c[group + i / 2 * 8][pair + i % 2] = registers.c[i];
      special |= !std::isfinite(registers.c[i]);
    }
  }

  float d[kRows][kColumns];
  for (int row = 0; row < kRows; ++row) {
    int largest[kColumns];
    for (int n = 0; n < kColumns; ++n) largest[n] = exponent_of(c[row][n]);
    for (int k = 0; k < kDepth; ++k)
      for (int n = 0; n < kColumns; ++n) {
        const int exponent = a_exponent[row][k] + b_exponent[k][n];
        largest[n] = exponent > largest[n] ? exponent : largest[n];
      }
    // In units of the last bit that is kept a term is an integer below 2^27 (C's below 2^26), and 16 of them fit 32 bits.
    double unit[kColumns];
    for (int n = 0; n < kColumns; ++n) unit[n] = power_of_two(kFractionalBits - largest[n]);
    std::int32_t sum[kColumns] = {};
    if (!special)
      for (int k = 0; k < kDepth; ++k)
        for (int n = 0; n < kColumns; ++n) sum[n] += static_cast<std::int32_t>(a[row][k] * b[k][n] * unit[n]);
    for (int n = 0; n < kColumns; ++n) {
      double products[kDepth];
      for (int k = 0; k < kDepth && special; ++k) products[k] = a[row][k] * b[k][n];
      std::uint32_t bits;
      if (special && is_special(c[row][n], products, bits)) {
        d[row][n] = std::bit_cast<float>(bits);
        continue;
      }
      for (int k = 0; k < kDepth && special; ++k) sum[n] += static_cast<std::int32_t>(products[k] * unit[n]);
      const auto term = static_cast<std::int64_t>(c[row][n] * unit[n]);
      d[row][n] = rounded(sum[n] + term, largest[n] - kFractionalBits);
    }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      lanes[static_cast<std::size_t>(lane)].d[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

}  // namespace flash::simt
