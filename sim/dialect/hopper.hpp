// hopper.hpp: see gpu/hopper.cuh.
#pragma once
#include "sim/dialect/warpgroup.hpp"
namespace flash::simt { void fence_proxy_async(); }
namespace flash::inline FLASH_MACHINE {
FLASH_INLINE void fence_proxy_async() { flash::simt::fence_proxy_async(); }
}
