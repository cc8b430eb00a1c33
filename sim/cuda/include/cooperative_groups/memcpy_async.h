// memcpy_async.h: in place of CUDA's cooperative_groups/memcpy_async.h, for programs that ./flash check compiles: a group
// copies from global to shared memory.
// Use: #include <cooperative_groups/memcpy_async.h>, as with nvcc; not here: layouts.
#pragma once
#include <cooperative_groups.h>

#include "sim/cuda/copies.hpp"

namespace cooperative_groups {

template <class Group, class T>
__device__ void memcpy_async(const Group& group, T* shared, const T* global, size_t bytes, FLASH_SITE) {
  flash::cuda::copy_async(group.thread_rank(), group.size(), shared, global, bytes, site);
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
