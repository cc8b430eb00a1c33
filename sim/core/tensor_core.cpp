// tensor_core.cpp: an element of D is one sum of 17 terms, 16 products and C's element, with one rounding at the end.
// Hopper's rule, found by probing (Li et al., MMA-Sim; Khattak and Mikaitis, arXiv 2512.07004): all terms are aligned
// to the largest exponent, each is truncated to 25 fractional bits, their sum is exact, the result is rounded towards
// zero. A product's exponent is the sum of its factors', so its significand lies in [1, 4). The H200's own results:
// docs/results/conformance-h200.txt, families mma_*.
// Use: tensor_core.hpp. element() is the rule; calculate() does the same to all elements at once.
#include "sim/core/tensor_core.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace flash::simt {
namespace {

constexpr int kFractionalBits = 25;
constexpr float kNaN = std::bit_cast<float>(0x7fffffff);
constexpr std::uint64_t kBeyondFloat = (std::uint64_t{1} << 29) - 1;  // bits of a double that fp32 has no place for

// Exponents. In sums of two, a zero and what is no number stand out, whatever the other factor is.
constexpr int kOfZero = -8000, kOfNoNumber = 16000;

// A 16-bit format: x = significand · 2^exponent, 1 <= |significand| < 2 unless it is subnormal.
template <int kFractionBits, int kBias>
struct Format {
  static constexpr int kFieldOfNoNumber = 2 * kBias + 1;  // infinities and NaN

  static std::int16_t exponent(std::uint16_t bits) {
    const int magnitude = bits & 0x7fff, field = magnitude >> kFractionBits;
    const int exponent = (field == 0 ? 1 : field) - kBias;
    return static_cast<std::int16_t>(magnitude == 0 ? kOfZero : field == kFieldOfNoNumber ? kOfNoNumber : exponent);
  }
  // Of a finite number.
  static float value(std::uint16_t bits) {
    const int magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
    if (kFractionBits == 7) return std::bit_cast<float>(bits << 16);  // bf16 is half an fp32
    const int field = magnitude >> kFractionBits, fraction = magnitude & ((1 << kFractionBits) - 1);
    const int significand = field == 0 ? fraction : fraction | 1 << kFractionBits;
    const int power = (field == 0 ? 1 : field) - kBias - kFractionBits;
    return static_cast<float>(significand) * std::bit_cast<float>((127 + power) << 23 | sign);
  }
  static double any_value(std::uint16_t bits) {
    if (exponent(bits) != kOfNoNumber) return value(bits);
    const bool infinite = (bits & ((1 << kFractionBits) - 1)) == 0;
    return !infinite ? std::numeric_limits<double>::quiet_NaN() : bits >> 15 ? -HUGE_VAL : HUGE_VAL;
  }
};
using Half = Format<10, 15>;
using Bfloat16 = Format<7, 127>;

// Of fp32; a zero counts as its least one.
int exponent_of(float x) {
  const int field = std::bit_cast<int>(x) >> 23 & 255;
  return (field == 0 ? 1 : field) - 127;
}

constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// Without the bits that fp32 has no place for: rounded towards zero.
double cut(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & ~kBeyondFloat);
}

float rounded(double exact) {
  const double size = std::fabs(cut(exact));
  if (size >= 0x1p-126 && size < 0x1p128) return static_cast<float>(cut(exact));
  if (size >= 0x1p128) return exact > 0 ? HUGE_VALF : -HUGE_VALF;
  return static_cast<float>(std::trunc(exact * 0x1p149) * 0x1p-149);  // subnormal
}

// The rule.
template <class Format>
float element(const std::uint16_t* a /*[16]*/, const std::uint16_t* b /*[16]*/, float c) {
  double products[kMmaDepth], plain_sum = c;
  int largest = exponent_of(c);
  for (int k = 0; k < kMmaDepth; ++k) {
    products[k] = Format::any_value(a[k]) * Format::any_value(b[k]);
    plain_sum += products[k];
    largest = std::max(largest, Format::exponent(a[k]) + Format::exponent(b[k]));
  }
  // Infinities and NaN: a plain sum tells what becomes of them.
  if (std::isnan(plain_sum)) return kNaN;
  if (std::isinf(plain_sum)) return static_cast<float>(plain_sum);

  // In units of the last bit that is kept.
  const double unit = power_of_two(largest - kFractionalBits), units = power_of_two(kFractionalBits - largest);
  auto sum = static_cast<std::int64_t>(c * units);
  for (const double product : products) sum += static_cast<std::int64_t>(product * units);
  return rounded(static_cast<double>(sum) * unit);
}

// Operands: A, C and D by columns of kRows elements, of B column after column. D may be C.
template <int kRows>
struct Operands {
  const std::uint16_t *a /*[kMmaDepth][kRows]*/, *b /*[columns][kMmaDepth]*/;
  const float* c;  // [columns][kRows], aligned as vectors are
  float* d;        // the same
  int columns;     // a multiple of 8, at most 256
};

template <class Format, int kRows>
float element_of(const Operands<kRows>& of, int n, int row, float c) {
  std::uint16_t a[kMmaDepth];
  for (int k = 0; k < kMmaDepth; ++k) a[k] = of.a[k * kRows + row];
  return element<Format>(a, of.b + n * kMmaDepth, c);
}

// Vectors of the compiler: registers of AVX2, or whatever the processor has for them.
constexpr int kWidth = 8;
typedef float Floats __attribute__((vector_size(32), may_alias));
typedef std::int32_t Ints __attribute__((vector_size(32), may_alias));
typedef std::int16_t Shorts __attribute__((vector_size(32), may_alias));
typedef std::int16_t HalfShorts __attribute__((vector_size(16), may_alias));

// The rule for eight rows of a column of D at a time. Where an element's largest exponent is between these, fp32 holds
// its products exactly, and in units of the last bit that is kept a term is an integer below 2^27. The others, and
// infinities and NaN, are left to element().
constexpr int kLow = -90, kHigh = 100;

template <class Format, int kRows>
void calculate(const Operands<kRows>& of) {
  constexpr int kMostColumns = kRows == 16 ? 8 : 256;
  // Decode each factor once.
  alignas(32) std::int16_t a_exponent[kMmaDepth * kRows], b_exponent[kMostColumns * kMmaDepth];
  alignas(32) float a[kMmaDepth * kRows], b[kMostColumns * kMmaDepth];
  std::int16_t largest_a = kOfZero, largest_b = kOfZero;
  for (int i = 0; i < kMmaDepth * kRows; ++i) {
    a_exponent[i] = Format::exponent(of.a[i]);
    largest_a = std::max(largest_a, a_exponent[i]);
  }
  for (int i = 0; i < of.columns * kMmaDepth; ++i) {
    b_exponent[i] = Format::exponent(of.b[i]);
    largest_b = std::max(largest_b, b_exponent[i]);
  }
  for (int i = 0; i < kMmaDepth * kRows; ++i) a[i] = Format::value(of.a[i]);
  for (int i = 0; i < of.columns * kMmaDepth; ++i) b[i] = Format::value(of.b[i]);

  const int elements = of.columns * kRows;
  if (largest_a + largest_b < kOfZero / 2) {  // zeros in all of A or B, a tile's edge say: D is C; -0 becomes +0
    for (int i = 0; i < elements; ++i) of.d[i] = of.c[i] == of.c[i] ? of.c[i] + 0.0f : kNaN;
    return;
  }
  if (largest_a + largest_b > kHigh) {
    for (int i = 0; i < elements; ++i) of.d[i] = element_of<Format>(of, i / kRows, i % kRows, of.c[i]);
    return;
  }

  for (int n = 0; n < of.columns; ++n) {
    // The largest exponent of an element's products.
    alignas(32) std::int16_t of_products[kRows];
    for (int row = 0; row < kRows; row += 2 * kWidth) {
      Shorts most = Shorts{} + std::int16_t{2 * kOfZero};
      for (int k = 0; k < kMmaDepth; ++k) {
        const Shorts sums =
            reinterpret_cast<const Shorts&>(a_exponent[k * kRows + row]) + b_exponent[n * kMmaDepth + k];
        most = sums > most ? sums : most;
      }
      reinterpret_cast<Shorts&>(of_products[row]) = most;
    }

    alignas(32) std::int32_t extreme[kRows];
    alignas(32) float of_c[kRows];  // what extreme elements need after D is written
    Ints any_extreme = {};
    for (int row = 0; row < kRows; row += kWidth) {
      // Of all its terms.
      const Floats c = reinterpret_cast<const Floats&>(of.c[n * kRows + row]);
      reinterpret_cast<Floats&>(of_c[row]) = c;
      const Ints products = __builtin_convertvector(reinterpret_cast<const HalfShorts&>(of_products[row]), Ints);
      const Ints field = (Ints)c >> 23 & 255, exponent_of_c = (field == 0 ? field + 1 : field) - 127;
      const Ints exponent = products > exponent_of_c ? products : exponent_of_c;
      const Ints not_low = exponent > kLow ? exponent : Ints{} + kLow;
      const Ints largest = not_low < kHigh ? not_low : Ints{} + kHigh, is_extreme = exponent != largest;
      const Floats units = (Floats)((127 + kFractionalBits - largest) << 23);
      const Floats unit = (Floats)((127 - kFractionalBits + largest) << 23);
      reinterpret_cast<Ints&>(extreme[row]) = is_extreme;
      any_extreme |= is_extreme;

      // Truncate and add: 16 products fit 32 bits. Then C's element, exactly, and round.
      Ints sum = {};
      for (int k = 0; k < kMmaDepth; ++k) {
        const Floats product = reinterpret_cast<const Floats&>(a[k * kRows + row]) * b[n * kMmaDepth + k];
        sum += __builtin_convertvector(product * units, Ints);
      }
      const Ints last = __builtin_convertvector((is_extreme ? Floats{} : c) * units, Ints);
      for (int i = 0; i < kWidth; ++i) {
        const double exact = static_cast<double>(sum[i]) + static_cast<double>(last[i]);
        of.d[n * kRows + row + i] = static_cast<float>(cut(exact)) * unit[i];
      }
    }

    // Without products, in rows of zeros, D is C here too.
    int any = 0;
    for (int i = 0; i < kWidth; ++i) any |= any_extreme[i];
    for (int row = 0; any && row < kRows; ++row) {
      if (!extreme[row]) continue;
      const float c = of_c[row];
      const bool is_c = of_products[row] < kOfZero / 2 && c == c;
      of.d[n * kRows + row] = is_c ? c + 0.0f : element_of<Format>(of, n, row, c);
    }
  }
}

}  // namespace

float mma_element(const std::uint16_t (&a)[kMmaDepth], const std::uint16_t (&b)[kMmaDepth], float c, MmaType type) {
  return type == MmaType::half ? element<Half>(a, b, c) : element<Bfloat16>(a, b, c);
}

void mma_m16n8k16(const std::array<MmaRegisters, 32>& lanes, MmaType type) {
  constexpr int kRows = 16, kColumns = 8;
  alignas(32) std::uint16_t a[kMmaDepth * kRows], b[kColumns * kMmaDepth];
  alignas(32) float c[kColumns * kRows];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaRegisters& registers = lanes[static_cast<std::size_t>(lane)];
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int r = 0; r < 4; ++r)
      for (int i = 0; i < 2; ++i)
        a[(pair + i + r / 2 * 8) * kRows + group + r % 2 * 8] = static_cast<std::uint16_t>(registers.a[r] >> 16 * i);
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < 2; ++i)
        b[group * kMmaDepth + pair + i + r * 8] = static_cast<std::uint16_t>(registers.b[r] >> 16 * i);
    for (int i = 0; i < 4; ++i) c[(pair + i % 2) * kRows + group + i / 2 * 8] = registers.c[i];
  }
  const Operands<kRows> of{a, b, c, c, kColumns};
  type == MmaType::half ? calculate<Half>(of) : calculate<Bfloat16>(of);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      lanes[static_cast<std::size_t>(lane)].d[i] = c[(lane % 4 * 2 + i % 2) * kRows + lane / 4 + i / 2 * 8];
}

void wgmma_m64nNk16(const std::uint16_t* a, const std::uint16_t* b, float* d, int columns, MmaType type) {
  const Operands<64> of{a, b, d, d, columns};
  type == MmaType::half ? calculate<Half>(of) : calculate<Bfloat16>(of);
}

}  // namespace flash::simt
