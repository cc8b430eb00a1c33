// assertions.cpp: assert() in a kernel: a finding and the block's end, instead of the whole program's.
// The linker puts this in the place of the C library's function (--wrap) when ./flash check links a program.
// Use: assert(x) in kernels; the host's go through.
#include "sim/core/block.hpp"

extern "C" [[noreturn]] void __real___assert_fail(const char*, const char*, unsigned, const char*);
extern "C" [[noreturn]] void __wrap___assert_fail(const char*, const char*, unsigned, const char*);
void __wrap___assert_fail(const char* expression, const char* file, unsigned line, const char* function) {
  if (flash::simt::active_worker) flash::simt::failed_assertion(expression, __builtin_return_address(0));
  __real___assert_fail(expression, file, line, function);
}
