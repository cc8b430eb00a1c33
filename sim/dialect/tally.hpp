// tally.hpp: counts FLOPs and exps (checked build): one add to a thread-local word, invisible to the instrumentation.
// A header of the system to the compiler, since its inline assembly is the simulator's and not a kernel's.
// Use: FLASH_COUNT(flops, 2) in the dialect.
#pragma once
#pragma GCC system_header
#include "sim/core/simt.hpp"

#if defined(FLASH_CHECKED) && defined(__x86_64__)
namespace flash::inline FLASH_MACHINE {
template <std::uint64_t simt::Tally::* kWhat, int kCount>
[[gnu::always_inline]] inline void count() {
  __asm__("addq %1, %0" : "+m"(simt::tally.*kWhat) : "i"(kCount));
}
}  // namespace flash::inline FLASH_MACHINE
#define FLASH_COUNT(what, n) flash::count<&flash::simt::Tally::what, n>()
#elif defined(FLASH_CHECKED)
#define FLASH_COUNT(what, n) (flash::simt::tally.what += n)
#else
#define FLASH_COUNT(what, n) (void)0
#endif
