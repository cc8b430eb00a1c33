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
  __device__ PlaceOf operator+(Int rows) const { return {row + rows, h, b}; }
};

// Attention as phases 05 to 24 know it: head h of Q has head h of K and V. `head` counts those of all batch entries;
// row i of its Q, and of all that has Q's shape, is at rows(head, H, i), key j at keys(head, H, j).
template <class Int>
struct PlainOf : Band<Int> {
  static constexpr bool groups = false;    // may several heads of Q meet the same keys?
  static constexpr int group = 1;          // so many, one behind the other
  static constexpr bool windows = false;   // may there be keys on the left that a row does not see? (phase 26)
  static constexpr bool lengths = false;   // are there sequences with lengths of their own? (phase 27)
  static constexpr bool modifies = false;  // does anything become of scores but a mask? (phase 28)
  static constexpr bool skips = false;     // do tiles come by lists, which leave some out? (phase 28)
  static constexpr bool drops = false;     // are some numbers of P left out? (phase 29)

  static constexpr std::size_t shared_bytes = 0;  // behind the kernel's shared struct (phase 28)

  __device__ PlaceOf<Int> rows(int head, int H, Int i) const { return {i, head % H, head / H}; }
  __device__ PlaceOf<Int> keys(int head, int H, Int j) const { return {j, head % H, head / H}; }
  // The same for who has head and batch entry: of K and V there are keys that some row sees, and all of dK's and dV's.
  __device__ PlaceOf<Int> rows_at(Int i, int h, int b) const { return {i, h, b}; }
  __device__ PlaceOf<Int> keys_at(Int j, int h, int b) const { return {j, h, b}; }
  __device__ PlaceOf<Int> all_keys_at(Int j, int h, int b) const { return {j, h, b}; }
  static __device__ unsigned kv_tile() { return blockIdx.x; }  // the block's
  // Of numbers of rows, padded for each head, a head's first; `rows` of a head in pieces of so many.
  template <class Count>
  __device__ Count first_padded(int head, int, Count rows, int) const {
    return head * rows;
  }
  // Of the same numbers without padding: of the rows of heads that meet the same keys, from the first head's on.
  __device__ int row_among(int row) const { return row; }
  // Is it known what a row of dS sums to? (It is dLSE: phase 20.)
  __device__ constexpr bool knows_sums() const { return true; }
  // What is read of the keys for rows first … last: up to one past the last that one of them sees; with windows a
  // range.
  __device__ Int keys_for(Int, Int last) const { return this->end(last); }

  // Q tiles of the heads that meet the same keys have numbers, in which the backward pass comes to them from the last
  // to the first (phase 24): all heads' last tiles before any head's one before.
  __device__ int tile_of(int number) const { return number; }
  __device__ int member_of(int) const { return 0; }      // which of the heads
  __device__ bool ends_tile(int) const { return true; }  // is it the tile's last one?

  template <class T>
  static PlainOf of(const DeviceProblem<T>& p) {
    const auto cut = [](std::int64_t x) { return static_cast<Int>(x); };  // TMA's rows, at most 2^30, fit an int
    return {{cut(p.band.left), cut(p.band.right), cut(p.band.Sq), cut(p.band.Sk)}};
  }
};
// #endregion

// What P V and Pᵀ dO are multiplied by in the end, so that what is left of P stands for all of it.
template <class Variant>
__device__ float of_kept(const Variant& band) {
  if constexpr (Variant::drops) return band.factor;
  return 1;
}
// #region of-sequence: what a variant is for one head
// Where sequences have lengths of their own (phase 27) the variant of the head's sequence, else the one of all.
template <class Variant>
__device__ __forceinline__ decltype(auto) of_sequence(const Variant& band, int head, int H) {
  if constexpr (Variant::lengths)
    return band.of(head, H);
  else
    return (band);
}
// A kernel's arguments as if the head's sequence were all there is.
template <int D, class Arguments, class Variant>
__device__ __forceinline__ decltype(auto) alone(const Arguments& a, const Variant& band, int head) {
  if constexpr (Variant::lengths)
    return band.template alone<D>(a, head);
  else
    return (a);
}
// #endregion

using Place = PlaceOf<int>;  // where TMA copies: it counts rows in 32 bits
using Plain = PlainOf<int>;

}  // namespace flash::inline FLASH_MACHINE
