// dialect_memory.hpp: memcpy, memmove and memset in kernels, whose accesses the instrumentation does not see; new and
// malloc, whose memory must be known. The checked build calls functions of sim/checks/hooks.cpp for them.
// Use: through "gpu/kernel.cuh" only; included after the standard headers, whose std::memcpy is renamed along.
#pragma once
#pragma GCC system_header  // whose inline assembly is not the user's
#include <cstring>

#if defined(FLASH_CHECKED)
extern "C" {
void* flash_memcpy(void* to, const void* from, std::size_t bytes) noexcept;
void* flash_memmove(void* to, const void* from, std::size_t bytes) noexcept;
void* flash_memset(void* to, int value, std::size_t bytes) noexcept;
}
// Calls of new, delete, malloc and free in this file go to our functions: an alias for the assembler, since g++ 12
// breaks down on an operator new with an assembler name.
__asm__(
    ".set malloc, flash_malloc\n.set free, flash_free\n"
    ".set _Znwm, flash_new\n.set _Znam, flash_new\n"
    ".set _ZdlPv, flash_delete\n.set _ZdaPv, flash_delete\n.set _ZdlPvm, flash_delete\n.set _ZdaPvm, flash_delete");
namespace std {
using ::flash_memcpy;
using ::flash_memmove;
using ::flash_memset;
}  // namespace std
#define memcpy flash_memcpy
#define memmove flash_memmove
#define memset flash_memset
#endif
