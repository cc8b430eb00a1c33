// conformance_words.hpp: the operands of conformance_words.cu, which kernels and the host make alike.
// Use: conformance_words.cu.
#pragma once
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define FLASH_ON_BOTH __host__ __device__
#else
#define FLASH_ON_BOTH
#endif

namespace flash {

// Words whose lanes are often at an end of their range, or equal in both.
FLASH_ON_BOTH inline unsigned scattered(unsigned x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}
FLASH_ON_BOTH inline unsigned packed_operand(unsigned i) {
  const unsigned word = scattered(i), ends = scattered(~i);
  unsigned result = word;
  for (unsigned byte = 0; byte < 4; ++byte) {
    const unsigned kind = ends >> 4 * byte & 15, shift = 8 * byte;
    const unsigned end = kind == 0 ? 0x80 : kind == 1 ? 0x7f : kind == 2 ? 0xff : kind == 3 ? 0 : word >> shift & 0xff;
    result = (result & ~(0xffu << shift)) | end << shift;
  }
  return i % 8 == 7 ? packed_operand(i - 1) : result;
}
// Every 64th float pattern of an exponent in reach of halfs, and of all others some.
FLASH_ON_BOTH inline unsigned rounded_operand(unsigned i) {
  const unsigned exponent = i % 3 ? 100 + i % 47 : i % 256, sign = i & 1 ? 0x80000000u : 0;
  const unsigned fraction = i % 5 == 0 ? scattered(i) & 0x7fe000u : scattered(i) & 0x7fffffu;
  return sign | exponent << 23 | (exponent == 255 ? 0 : fraction);
}

#define FLASH_PACKED_NAMES(X)                                                                                         \
  X(vadd)                                                                                                             \
  X(vaddss) X(vaddus) X(vsub) X(vsubss) X(vsubus) X(vavgs) X(vavgu) X(vhaddu) X(vabsdiffs) X(vabsdiffu) X(vmaxs)      \
      X(vmaxu) X(vmins) X(vminu) X(vsads) X(vsadu) X(vcmpeq) X(vcmpne) X(vcmpges) X(vcmpgeu) X(vcmpgts) X(vcmpgtu)    \
          X(vcmples) X(vcmpleu) X(vcmplts) X(vcmpltu) X(vseteq) X(vsetne) X(vsetges) X(vsetgeu) X(vsetgts) X(vsetgtu) \
              X(vsetles) X(vsetleu) X(vsetlts) X(vsetltu)
constexpr unsigned kPackedPairs = 1024, kPackedOfTwo = 37, kPackedResults = 2 * kPackedOfTwo + 12;
constexpr unsigned kRoundedNumbers = 16384;

// A function of floats on 256 of them from `from` to `to`. Tolerances: the programming guide's maximum errors against
// the exact result, and one for the rounding of what it is compared with.
struct MathematicsFamily {
  const char* name;
  float from, to;
  int max_ulp;
};
constexpr MathematicsFamily kMathematics[] = {
    {"rcbrtf", 0.01f, 1000.0f, 2},   {"sinpif", -9.0f, 9.0f, 2},        {"cospif", -9.0f, 9.0f, 2},
    {"norm3df", -50.0f, 50.0f, 4},   {"rnorm4df", -50.0f, 50.0f, 3},    {"rhypotf", -50.0f, 50.0f, 3},
    {"erfinvf", -0.999f, 0.999f, 3}, {"erfcinvf", 0.0001f, 1.9f, 5},    {"erfcxf", -3.0f, 30.0f, 5},
    {"normcdff", -9.0f, 4.0f, 6},    {"normcdfinvf", 0.001f, 0.999f, 6}};
inline float mathematics_operand(const MathematicsFamily& of, int i) {
  return std::fma(of.to - of.from, static_cast<float>(i) / 255.0f, of.from);
}

}  // namespace flash
