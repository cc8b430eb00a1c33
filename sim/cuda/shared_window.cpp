// shared_window.cpp: 32-bit addresses of shared memory, as inline assembly takes them. The window begins at a multiple
// of 1024, so that an address has the low bits of its pointer, as programs that swizzle by them expect, and before the
// block's shared memory, so that no variable has the address 0. Use: see sim/cuda/inline_ptx.hpp.
#include <cstddef>
#include <cstdint>

#include "sim/core/block.hpp"

namespace flash::cuda {

std::byte* shared_window();

std::byte* shared_window() {
  const auto begin = reinterpret_cast<std::uintptr_t>(flash::simt::active_worker->shared);
  return reinterpret_cast<std::byte*>(begin / 1024 * 1024 - 1024);
}

}  // namespace flash::cuda
