// dialect_memory.hpp: memcpy, memmove and memset in kernels. The compiler's instrumentation does not see what they
// touch, so the checked build calls functions that say it (sim/checks/hooks.cpp); the fast build needs nothing.
// Use: through "gpu/kernel.cuh" only; included after the standard headers, whose std::memcpy is renamed along.
#pragma once
#include <cstring>

#if defined(FLASH_CHECKED)
extern "C" {
void* flash_memcpy(void* to, const void* from, std::size_t bytes) noexcept;
void* flash_memmove(void* to, const void* from, std::size_t bytes) noexcept;
void* flash_memset(void* to, int value, std::size_t bytes) noexcept;
}
namespace std {
using ::flash_memcpy;
using ::flash_memmove;
using ::flash_memset;
}  // namespace std
#define memcpy flash_memcpy
#define memmove flash_memmove
#define memset flash_memset
#endif
