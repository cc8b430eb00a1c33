// variant.cuh: what kinds of attention differ in while their kernel is one: which keys a row sees, and where a head's
// rows and keys lie. A kernel takes a variant by value where it took the band alone, and asks it; phase 25 has another.
// Use: Plain::of(p) for a kernel;  there band.end(row), band.rows(head, H, first_row), band.keys(head, H, 0)
#pragma once
#include "phases/interface/kernel_phase.cuh"

namespace flash::inline FLASH_MACHINE {

// #region variant: where a head's rows and keys are
// A row of a tensor [B, H, S, D].
template <class Int>
struct PlaceOf {
  Int row;
  int h, b;
};

// Attention as phases 05 to 24 know it: head h of Q has head h of K and V. `head` counts those of all batch entries;
// row i of its Q, and of all that has Q's shape, is at rows(head, H, i), key j at keys(head, H, j).
template <class Int>
struct PlainOf : Band<Int> {
  static constexpr bool groups = false;    // may several heads of Q meet the same keys?
  static constexpr int group = 1;          // so many, one behind the other
  static constexpr bool modifies = false;  // does anything become of scores but a mask? (phase 28)

  __device__ PlaceOf<Int> rows(int head, int H, Int i) const { return {i, head % H, head / H}; }
  __device__ PlaceOf<Int> keys(int head, int H, Int j) const { return {j, head % H, head / H}; }
  // Is it known what a row of dS sums to? (It is dLSE: phase 20.)
  __device__ constexpr bool knows_sums() const { return true; }

  template <class T>
  static PlainOf of(const DeviceProblem<T>& p) {
    const auto cut = [](std::int64_t x) { return static_cast<Int>(x); };  // TMA's rows, at most 2^30, fit an int
    return {{cut(p.band.left), cut(p.band.right), cut(p.band.Sq), cut(p.band.Sk)}};
  }
};
// #endregion

using Place = PlaceOf<int>;  // where TMA copies: it counts rows in 32 bits
using Plain = PlainOf<int>;

}  // namespace flash::inline FLASH_MACHINE
