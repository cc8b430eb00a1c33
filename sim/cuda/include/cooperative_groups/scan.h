// scan.h: in place of CUDA's cooperative_groups/scan.h, for programs that ./flash check compiles: each thread of a tile or
// of coalesced threads gets the sum of the values up to its own, or before it.
// Use: #include <cooperative_groups/scan.h>, as with nvcc.
#pragma once
#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

template <class Group, class T, class Operation = plus<T>>
__device__ T inclusive_scan(const Group& group, T value, Operation operation = {}, FLASH_SITE) {
  for (unsigned distance = 1; distance < group.size(); distance *= 2) {
    const T other = group.shfl_up(value, distance, site);
    if (group.thread_rank() >= distance) value = operation(other, value);
  }
  return value;
}
// The first thread gets T{}, whatever the operation.
template <class Group, class T, class Operation = plus<T>>
__device__ T exclusive_scan(const Group& group, T value, Operation operation = {}, FLASH_SITE) {
  const T before = group.shfl_up(inclusive_scan(group, value, operation, site), 1, site);
  return group.thread_rank() > 0 ? before : T{};
}

}  // namespace cooperative_groups
