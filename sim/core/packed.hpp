// packed.hpp: CUDA's arithmetic on the two halves or four bytes of a word, exact: __vadd2, __vabsdiffu4, __dp2a_lo.
// Global and plain, as the C library's functions: they touch no memory, so that no check misses anything.
// Use: the words of a kernel, through sim/dialect/dialect.hpp.
#pragma once

// Each for halves (2) and bytes (4); s, u: signed, unsigned; ss, us: the same, saturating.
#define FLASH_PACKED(X)                                                                                          \
  X(vadd) X(vaddss) X(vaddus) X(vsub) X(vsubss) X(vsubus) X(vavgs) X(vavgu) X(vhaddu) X(vabsdiffs) X(vabsdiffu)  \
  X(vmaxs) X(vmaxu) X(vmins) X(vminu) X(vsads) X(vsadu)                                                          \
  X(vcmpeq) X(vcmpne) X(vcmpges) X(vcmpgeu) X(vcmpgts) X(vcmpgtu) X(vcmples) X(vcmpleu) X(vcmplts) X(vcmpltu)    \
  X(vseteq) X(vsetne) X(vsetges) X(vsetgeu) X(vsetgts) X(vsetgtu) X(vsetles) X(vsetleu) X(vsetlts) X(vsetltu)
#define FLASH_DECLARE(name)                    \
  unsigned __##name##2(unsigned a, unsigned b); \
  unsigned __##name##4(unsigned a, unsigned b);
FLASH_PACKED(FLASH_DECLARE)
#undef FLASH_DECLARE
unsigned __vabs2(unsigned a);
unsigned __vabs4(unsigned a);
unsigned __vabsss2(unsigned a);
unsigned __vabsss4(unsigned a);
unsigned __vneg2(unsigned a);
unsigned __vneg4(unsigned a);
unsigned __vnegss2(unsigned a);
unsigned __vnegss4(unsigned a);
// c and the products of a's halves with the lower or upper two bytes of b.
int __dp2a_lo(int a, int b, int c);
int __dp2a_hi(int a, int b, int c);
unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c);
unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c);
