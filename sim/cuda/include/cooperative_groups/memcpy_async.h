// memcpy_async.h: in place of CUDA's cooperative_groups/memcpy_async.h, for programs that ./flash check compiles: a group
// copies from global to shared memory, in the widest pieces that both addresses and the size allow.
// Use: #include <cooperative_groups/memcpy_async.h>, as with nvcc; not here: layouts, cuda::aligned_size_t.
#pragma once
#include <cooperative_groups.h>

#include <cstdint>

namespace cooperative_groups {

template <class Group, class T>
__device__ void memcpy_async(const Group& group, T* shared, const T* global, size_t bytes, FLASH_SITE) {
  char* const to = reinterpret_cast<char*>(shared);
  const char* const from = reinterpret_cast<const char*>(global);
  size_t piece = 16;
  while ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) % piece != 0)
    piece /= 2;
  for (size_t i = group.thread_rank() * piece; i < bytes; i += group.size() * piece)
    if (piece >= 4)
      flash::simt::cp_async(to + i, from + i, static_cast<unsigned>(piece), static_cast<unsigned>(piece), site);
    else
      memcpy(to + i, from + i, piece);  // too narrow for cp.async
  flash::simt::cp_async_commit();
}

template <class Group>
__device__ void wait(const Group& group, FLASH_SITE) {
  flash::simt::cp_async_wait(0, site);
  group.sync(site);
}
template <unsigned kGroups, class Group>
__device__ void wait_prior(const Group& group, FLASH_SITE) {
  flash::simt::cp_async_wait(kGroups, site);
  group.sync(site);
}

}  // namespace cooperative_groups
