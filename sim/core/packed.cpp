// packed.cpp: see packed.hpp: one function for each lane, on integers that hold every result.
// Use: see packed.hpp.
#include "sim/core/packed.hpp"

#include <algorithm>
#include <cstdlib>
namespace {

// Lane i of a word.
template <int kBits, bool kSigned>
int lane(unsigned word, int i) {
  const unsigned bits = word >> i * kBits & ((1u << kBits) - 1);
  return kSigned && bits >> (kBits - 1) ? static_cast<int>(bits) - (1 << kBits) : static_cast<int>(bits);
}

// f(lane of a, lane of b) for each lane, cut to its bits.
template <int kBits, bool kSigned, class F>
unsigned each(unsigned a, unsigned b, const F& f) {
  unsigned result = 0;
  for (int i = 0; i < 32 / kBits; ++i)
    result |= (static_cast<unsigned>(f(lane<kBits, kSigned>(a, i), lane<kBits, kSigned>(b, i))) & ((1u << kBits) - 1))
              << i * kBits;
  return result;
}

template <int kBits, bool kSigned>
int saturated(int x) {
  return std::clamp(x, kSigned ? -(1 << (kBits - 1)) : 0, (1 << (kBits - kSigned)) - 1);
}

template <int kBits, bool kSigned>
unsigned sum_of_differences(unsigned a, unsigned b) {
  int sum = 0;
  for (int i = 0; i < 32 / kBits; ++i) sum += std::abs(lane<kBits, kSigned>(a, i) - lane<kBits, kSigned>(b, i));
  return static_cast<unsigned>(sum);
}

}  // namespace

#define FLASH_EACH(name, is_signed, result)                                   \
  unsigned __##name##2(unsigned x, unsigned y) {                              \
    constexpr int kBits = 16;                                                 \
    return each<kBits, is_signed>(x, y, [](int a, int b) { return result; }); \
  }                                                                           \
  unsigned __##name##4(unsigned x, unsigned y) {                              \
    constexpr int kBits = 8;                                                  \
    return each<kBits, is_signed>(x, y, [](int a, int b) { return result; }); \
  }
FLASH_EACH(vadd, false, a + b)
FLASH_EACH(vaddss, true, (saturated<kBits, true>(a + b)))
FLASH_EACH(vaddus, false, (saturated<kBits, false>(a + b)))
FLASH_EACH(vsub, false, a - b)
FLASH_EACH(vsubss, true, (saturated<kBits, true>(a - b)))
FLASH_EACH(vsubus, false, (saturated<kBits, false>(a - b)))
FLASH_EACH(vavgs, true, (a + b + (a + b >= 0)) >> 1)  // halves away from zero
FLASH_EACH(vavgu, false, (a + b + 1) >> 1)
FLASH_EACH(vhaddu, false, (a + b) >> 1)
FLASH_EACH(vabsdiffs, true, std::abs(a - b))
FLASH_EACH(vabsdiffu, false, std::abs(a - b))
FLASH_EACH(vmaxs, true, std::max(a, b))
FLASH_EACH(vmaxu, false, std::max(a, b))
FLASH_EACH(vmins, true, std::min(a, b))
FLASH_EACH(vminu, false, std::min(a, b))
// All ones, or one, where it is true.
#define FLASH_COMPARE(name, is_signed, op)             \
  FLASH_EACH(vcmp##name, is_signed, (a op b) ? -1 : 0) \
  FLASH_EACH(vset##name, is_signed, (a op b) ? 1 : 0)
FLASH_COMPARE(eq, false, ==)
FLASH_COMPARE(ne, false, !=)
FLASH_COMPARE(ges, true, >=)
FLASH_COMPARE(geu, false, >=)
FLASH_COMPARE(gts, true, >)
FLASH_COMPARE(gtu, false, >)
FLASH_COMPARE(les, true, <=)
FLASH_COMPARE(leu, false, <=)
FLASH_COMPARE(lts, true, <)
FLASH_COMPARE(ltu, false, <)

unsigned __vsads2(unsigned a, unsigned b) {
  return sum_of_differences<16, true>(a, b);
}
unsigned __vsads4(unsigned a, unsigned b) {
  return sum_of_differences<8, true>(a, b);
}
unsigned __vsadu2(unsigned a, unsigned b) {
  return sum_of_differences<16, false>(a, b);
}
unsigned __vsadu4(unsigned a, unsigned b) {
  return sum_of_differences<8, false>(a, b);
}
#define FLASH_OF_ONE(name, result)                                     \
  unsigned __##name##2(unsigned x) {                                   \
    constexpr int kBits = 16;                                          \
    return each<kBits, true>(x, 0, [](int a, int) { return result; }); \
  }                                                                    \
  unsigned __##name##4(unsigned x) {                                   \
    constexpr int kBits = 8;                                           \
    return each<kBits, true>(x, 0, [](int a, int) { return result; }); \
  }
FLASH_OF_ONE(vabs, std::abs(a))
FLASH_OF_ONE(vabsss, (saturated<kBits, true>(std::abs(a))))
FLASH_OF_ONE(vneg, -a)
FLASH_OF_ONE(vnegss, (saturated<kBits, true>(-a)))

namespace {
template <bool kSigned>
unsigned dp2a(unsigned a, unsigned b, unsigned c, int first) {
  for (int i = 0; i < 2; ++i)
    c += static_cast<unsigned>(lane<16, kSigned>(a, i)) * static_cast<unsigned>(lane<8, kSigned>(b, first + i));
  return c;
}
template <bool kSigned>
int dp2a(int a, int b, int c, int first) {
  return static_cast<int>(
      dp2a<kSigned>(static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c), first));
}
}  // namespace
int __dp2a_lo(int a, int b, int c) {
  return dp2a<true>(a, b, c, 0);
}
int __dp2a_hi(int a, int b, int c) {
  return dp2a<true>(a, b, c, 2);
}
unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return dp2a<false>(a, b, c, 0);
}
unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
  return dp2a<false>(a, b, c, 2);
}
