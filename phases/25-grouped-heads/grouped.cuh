// grouped.cuh: the variant of grouped heads: where K and V of a head lie. All else is as in phases 13 and 19.
// New since the plain variant (phases/interface/variant.cuh): one function.
// Use: phase19::Attention::launch<T, D, Br, Bc, Grouped<int>>(p);
#pragma once
#include "phases/interface/variant.cuh"

namespace flash::inline FLASH_MACHINE {

// #region grouped: K and V of a head
// `group` heads of Q, one behind the other, share a head of K and V.
template <class Int>
struct Grouped : PlainOf<Int> {
  static constexpr bool groups = true;
  int group;

  __device__ PlaceOf<Int> keys(int head, int H, Int j) const { return {j, head % H / group, head / H}; }
  __device__ int tile_of(int number) const { return number / group; }
  __device__ int member_of(int number) const { return group - 1 - number % group; }
  __device__ bool ends_tile(int number) const { return number % group == 0; }

  template <class T>
  static Grouped of(const DeviceProblem<T>& p) {
    return {PlainOf<Int>::of(p), p.H / p.Hk};
  }
};
// #endregion

}  // namespace flash::inline FLASH_MACHINE
