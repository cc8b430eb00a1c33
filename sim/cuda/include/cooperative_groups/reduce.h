// reduce.h: in place of CUDA's cooperative_groups/reduce.h, for programs that ./flash check compiles: reductions of tiles
// and of coalesced threads. Of a tile each step adds the value of the lane whose number differs in one bit.
// Use: #include <cooperative_groups/reduce.h>, as with nvcc.
#pragma once
#include <cooperative_groups.h>

namespace cooperative_groups {

#define FLASH_OPERATION(name, result)                          \
  template <class T>                                           \
  struct name {                                                \
    __device__ T operator()(T a, T b) const { return result; } \
  };
FLASH_OPERATION(plus, a + b)
FLASH_OPERATION(less, b < a ? b : a)
FLASH_OPERATION(greater, a < b ? b : a)
FLASH_OPERATION(bit_and, a & b)
FLASH_OPERATION(bit_or, a | b)
FLASH_OPERATION(bit_xor, a ^ b)
#undef FLASH_OPERATION

template <unsigned N, class Parent, class T, class Operation>
  requires(N <= 32)
__device__ T reduce(const thread_block_tile<N, Parent>& tile, T value, Operation operation, FLASH_SITE) {
  for (unsigned bits = N / 2; bits > 0; bits /= 2)
    value = operation(value, tile.shfl_xor(value, static_cast<int>(bits), site));
  return value;
}
// Of a tile of several warps: each warp's result, then these from the first one on.
template <unsigned N, class T, class Operation>
__device__ T reduce(const flash_warps<N>& tile, T value, Operation operation, FLASH_SITE) {
  const thread_block_tile<32> warp(this_thread_block().thread_rank(), 0, 1);
  return tile.combined(reduce(warp, value, operation, site), operation, site);
}
template <class T, class Operation>
__device__ T reduce(const coalesced_group& group, T value, Operation operation, FLASH_SITE) {
  for (unsigned distance = 1; distance < group.size(); distance *= 2) {
    const T other = group.shfl_down(value, distance, site);
    if (group.thread_rank() % (2 * distance) == 0 && group.thread_rank() + distance < group.size())
      value = operation(value, other);
  }
  return group.shfl(value, 0, site);
}

}  // namespace cooperative_groups
