// tensor_core.cpp: an element of D is one sum of 17 terms, 16 products and C's element, with one rounding at the end.
// Hopper's rule, found by probing (Li et al., MMA-Sim; Khattak and Mikaitis, arXiv 2512.07004): all terms are aligned
// to the largest exponent, each is truncated to 25 fractional bits, their sum is exact, the result is rounded towards
// zero. A product's exponent is the sum of its factors', so its significand lies in [1, 4). The H200's own results:
// docs/results/conformance-h200.txt, families mma_*.
// Use: tensor_core.hpp.
#include "sim/core/tensor_core.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace flash::simt {
namespace {

constexpr int kRows = 16, kColumns = 8, kDepth = 16;
constexpr int kFractionalBits = 25;
constexpr int kLeastExponent = -126;  // of fp32; a zero counts as this
constexpr int kOfZero = -10000;       // no product of a zero decides the exponent
constexpr std::uint32_t kNaN = 0x7fffffff;

constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

int exponent_field(float x) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23) & 255;
}

// Matrices of 16-bit elements: value = significand · 2^exponent, 1 <= |significand| < 2 unless it is subnormal.
template <int kRowsOf, int kColumnsOf>
struct Matrix {
  double value[kRowsOf][kColumnsOf];
  int exponent[kRowsOf][kColumnsOf];

  // Says whether the element is infinite or NaN.
  template <int kFractionBits, int kBias>
  bool set(int row, int column, std::uint32_t bits) {
    constexpr int kLargest = 2 * kBias + 1;  // the field of infinities and NaN
    const int field = static_cast<int>(bits >> kFractionBits) & kLargest;
    const int fraction = static_cast<int>(bits & ((1u << kFractionBits) - 1));
    const int significand = field ? fraction | 1 << kFractionBits : fraction;
    const int power = (field ? field : 1) - kBias;
    double magnitude = significand * power_of_two(power - kFractionBits);
    if (field == kLargest) magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
    value[row][column] = bits >> 15 & 1 ? -magnitude : magnitude;
    exponent[row][column] = significand ? power : kOfZero;
    return field == kLargest;
  }
  bool set(int row, int column, std::uint32_t bits, MmaType type) {
    return type == MmaType::half ? set<10, 15>(row, column, bits) : set<7, 127>(row, column, bits);
  }
};

// sum · 2^exponent as fp32, rounded towards zero.
float rounded(std::int64_t sum, int exponent) {
  constexpr std::uint64_t kBeyondFloat = (std::uint64_t{1} << 29) - 1;  // bits of a double that fp32 has no place for
  const double exact = static_cast<double>(sum) * power_of_two(exponent);
  const double cut = std::bit_cast<double>(std::bit_cast<std::uint64_t>(exact) & ~kBeyondFloat);
  if (std::fabs(cut) >= 0x1p-126 && std::fabs(cut) < 0x1p128) return static_cast<float>(cut);
  if (std::fabs(cut) >= 0x1p128) return cut > 0 ? HUGE_VALF : -HUGE_VALF;
  return static_cast<float>(std::trunc(exact * 0x1p149) * 0x1p-149);  // subnormal
}

// Zeros in all of A or all of B (a tile's edge, P of keys that nobody sees) and no infinity or NaN in the other: D = C.
template <int kCount, const std::uint32_t* MmaRegisters::*kRegisters>
std::uint32_t bits_of(const std::array<MmaRegisters, 32>& lanes, std::uint32_t exponent, bool& special) {
  std::uint32_t bits = 0;
  for (const MmaRegisters& lane : lanes)
    for (int i = 0; i < kCount; ++i) {
      const std::uint32_t both = (lane.*kRegisters)[i], low = both & exponent, high = both >> 16 & exponent;
      bits |= both;
      special |= low == exponent || high == exponent;
    }
  return bits & 0x7fff7fff;
}
bool is_zero(const std::array<MmaRegisters, 32>& lanes, MmaType type) {
  const std::uint32_t exponent = type == MmaType::half ? 0x7c00 : 0x7f80;
  bool special = false;
  const std::uint32_t a = bits_of<4, &MmaRegisters::a>(lanes, exponent, special);
  const std::uint32_t b = bits_of<2, &MmaRegisters::b>(lanes, exponent, special);
  return !special && (a == 0 || b == 0);
}

}  // namespace

void mma_m16n8k16(const std::array<MmaRegisters, 32>& lanes, MmaType type) {
  if (is_zero(lanes, type)) {
    for (const MmaRegisters& lane : lanes)
      for (int i = 0; i < 4; ++i) {
        const float c = lane.c[i];
        lane.d[i] = c != c ? std::bit_cast<float>(kNaN) : c + 0.0f;  // -0 becomes +0
      }
    return;
  }
  Matrix<kRows, kDepth> a;
  Matrix<kDepth, kColumns> b;
  float c[kRows][kColumns], d[kRows][kColumns];
  bool special = false;  // some input is NaN or infinite
  for (int lane = 0; lane < 32; ++lane) {
    const MmaRegisters& registers = lanes[static_cast<std::size_t>(lane)];
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int r = 0; r < 4; ++r)
      for (int i = 0; i < 2; ++i)
        special |= a.set(group + r % 2 * 8, pair + i + r / 2 * 8, registers.a[r] >> 16 * i & 0xffff, type);
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < 2; ++i) special |= b.set(pair + i + r * 8, group, registers.b[r] >> 16 * i & 0xffff, type);
    for (int i = 0; i < 4; ++i) {
      c[group + i / 2 * 8][pair + i % 2] = registers.c[i];
      special |= exponent_field(registers.c[i]) == 255;
    }
  }

  // Infinities and NaN: a plain sum tells what becomes of them. To the other elements they are no more than zeros.
  bool decided[kRows][kColumns] = {};
  if (special) {
    for (int row = 0; row < kRows; ++row)
      for (int n = 0; n < kColumns; ++n) {
        double sum = c[row][n];
        for (int k = 0; k < kDepth; ++k) sum += a.value[row][k] * b.value[k][n];
        decided[row][n] = !std::isfinite(sum);
        if (decided[row][n]) d[row][n] = std::isnan(sum) ? std::bit_cast<float>(kNaN) : static_cast<float>(sum);
      }
    const auto clear = [](auto& element) { element = std::isfinite(element) ? element : 0; };
    for (auto& row : a.value)
      for (double& element : row) clear(element);
    for (auto& row : b.value)
      for (double& element : row) clear(element);
    for (auto& row : c)
      for (float& element : row) clear(element);
  }

  for (int row = 0; row < kRows; ++row) {
    int largest[kColumns];
    for (int n = 0; n < kColumns; ++n) {
      const int field = exponent_field(c[row][n]);
      largest[n] = (field ? field : 1) - 127;
    }
    for (int k = 0; k < kDepth; ++k)
      for (int n = 0; n < kColumns; ++n) {
        const int exponent = a.exponent[row][k] + b.exponent[k][n];
        largest[n] = exponent > largest[n] ? exponent : largest[n];
      }
    // In units of the last bit that is kept a term is an integer below 2^27 (C's below 2^26): 16 of them fit 32 bits.
    double unit[kColumns];
    std::int32_t sum[kColumns] = {};
    for (int n = 0; n < kColumns; ++n) unit[n] = power_of_two(kFractionalBits - largest[n]);
    for (int k = 0; k < kDepth; ++k)
      for (int n = 0; n < kColumns; ++n) sum[n] += static_cast<std::int32_t>(a.value[row][k] * b.value[k][n] * unit[n]);
    for (int n = 0; n < kColumns; ++n)
      if (!decided[row][n])
        d[row][n] = rounded(sum[n] + static_cast<std::int64_t>(c[row][n] * unit[n]), largest[n] - kFractionalBits);
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      lanes[static_cast<std::size_t>(lane)].d[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

}  // namespace flash::simt
