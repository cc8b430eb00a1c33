// masks.cuh: what masks that are arrays hide: a bool mask, documents, a block mask; and the modifier that does that.
// Use: phase19::Attention::launch_here<T, D, Br, Bc, Modified<Grouped<int>, Masks>>(with_scores_of<Masks>(p));
#pragma once
#include "phases/28-modifiers/modified.cuh"

namespace flash::inline FLASH_MACHINE {

// #region pairs: a number for each pair of query and key, and the lane's share of it
// An array [B|1, H|1, Sq|1, Sk]: where an axis is 1 its stride is 0.
template <class U>
struct PairArray {
  const U* data;  // null: there is none
  std::int64_t b_stride, h_stride, stride;

  static PairArray of(const AnyView& view) {
    const auto stride = [&](int axis) { return view.shape[axis] == 1 ? 0 : view.stride[axis]; };
    return {static_cast<const U*>(view.data), stride(0), stride(1), stride(2)};
  }
  __device__ const U* head(int b, int h) const { return data + b * b_stride + h * h_stride; }
};

// What is there for a lane's elements of a product, from query i and key j on. Rows beyond the end count as the last
// one, whatever becomes of them; of columns beyond it nothing is read.
template <class U, bool kTransposed>
struct Patch {
  const U* row[2];
  std::int64_t step;  // from a column to the next
  int columns;        // that exist

  __device__ Patch(const U* head, std::int64_t stride, int i, int j, int Sq, int Sk)
      : step(kTransposed ? stride : 1), columns(kTransposed ? Sq - i : Sk - j) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      row[r] = kTransposed ? head + i * stride + min(j + 8 * r, Sk - 1) : head + min(i + 8 * r, Sq - 1) * stride + j;
  }
  __device__ __forceinline__ bool has(int e) const {
    return column_of(e) < columns;
  }
  __device__ __forceinline__ U operator[](int e) const {
    return row[row_of(e)][column_of(e) * step];
  }
};
// #endregion

// #region kinds: what a block mask says of a lane's elements
// A bit for each 8 columns: blocks begin at multiples of 64, and a lane's two rows lie in the same one. What does not
// exist counts as whole: nobody asks.
template <int N, bool kTransposed>
struct Kinds {
  static constexpr bool kAligned = N % 32 == 0 || 32 % N == 0;  // do tiles begin where blocks do, or lie within one?
  unsigned none_of = 0, whole_of = 0;

  __device__ __forceinline__ Kinds(const PairArray<std::uint8_t>& blocks, int b, int h, int i, int j, int Sq, int Sk) {
    if (!blocks.data) return;
    const std::uint8_t* const of_head = blocks.head(b, h);
    unsigned kind = 0;
#pragma unroll
    for (int n = 0; n < N / 4; ++n) {
      const int query = kTransposed ? i + 8 * n : i, key = kTransposed ? j : j + 8 * n;
      if (!kAligned || n % 8 == 0)
        kind = (query & -64) >= Sq || (key & -64) >= Sk ? 2 : of_head[query / 64 * blocks.stride + key / 64];
      none_of |= (kind == 0 ? 1u : 0u) << n, whole_of |= (kind == 2 ? 1u : 0u) << n;
    }
  }
  __device__ __forceinline__ bool none(int e) const {
    return none_of >> (e / 4) & 1;
  }
  __device__ __forceinline__ bool whole(int e) const {
    return whole_of >> (e / 4) & 1;
  }
  __device__ __forceinline__ bool all_whole() const {
    return whole_of == (1u << N / 4) - 1;
  }
};
// #endregion

// #region masks
// Hides what one of them hides. As a modifier it takes q·k as it is; a tile that is seen whole costs next to nothing.
struct Masks {
  static constexpr bool waits = false;          // Modified: a tile that is seen whole has no use for registers
  PairArray<std::uint8_t> allowed, blocks;      // blocks: a BlockKind for 64 x 64 pairs
  const std::int32_t *document_q, *document_k;  // null: there are none
  std::int64_t q_stride, k_stride;              // from one batch entry to the next
  int Sq, Sk;

  template <class T>
  static Masks of(const DeviceProblem<T>& p) {
    const AnyProblem& all = *p.all;
    const auto stride = [](const AnyView& view) { return view.shape[0] == 1 ? 0 : view.stride[0]; };
    return {PairArray<std::uint8_t>::of(all.allowed),
            PairArray<std::uint8_t>::of(all.blocks),
            static_cast<const std::int32_t*>(all.document_q.data),
            static_cast<const std::int32_t*>(all.document_k.data),
            stride(all.document_q),
            stride(all.document_k),
            static_cast<int>(p.band.Sq),
            static_cast<int>(p.band.Sk)};
  }
  template <class T>
  static float unit(const DeviceProblem<T>& p) {
    return p.scale;
  }
  __device__ constexpr bool bends() const { return false; }
  // Of 64 x 64 pairs.
  __device__ bool hides_block(int b, int h, std::int64_t row, std::int64_t column) const {
    return blocks.data && blocks.head(b, h)[row * blocks.stride + column] == 0;
  }

  template <bool kTransposed, int N, class Note>
  __device__ __forceinline__ void apply(float (&s)[N], const Note&, int b, int h, int i, int j) const {
    if (Sk == 0) return;  // a tile of keys that do not exist
    const Kinds<N, kTransposed> kinds(blocks, b, h, i, j, Sq, Sk);
    if (kinds.all_whole()) return;  // the same in all lanes of a warp
    if (kinds.none_of != 0)
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (kinds.none(e)) s[e] = -INFINITY;
    if (allowed.data) {
      const Patch<std::uint8_t, kTransposed> of_pairs(allowed.head(b, h), allowed.stride, i, j, Sq, Sk);
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (of_pairs.has(e) && !kinds.whole(e) && of_pairs[e] == 0) s[e] = -INFINITY;
    }
    if (document_q) {
      const std::int32_t *const of_rows = document_q + b * q_stride, *const of_keys = document_k + b * k_stride;
      // A product's rows are queries, or keys; then its columns are the others.
      const std::int32_t *const down = kTransposed ? of_keys : of_rows, *const across = kTransposed ? of_rows : of_keys;
      const int at = kTransposed ? j : i, last = (kTransposed ? Sk : Sq) - 1, first = kTransposed ? i : j;
      const std::int32_t mine[2] = {down[min(at, last)], down[min(at + 8, last)]};
      const Patch<std::int32_t, false> columns(across, 0, 0, first, 1, kTransposed ? Sq : Sk);
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (columns.has(e) && !kinds.whole(e) && columns[e] != mine[row_of(e)]) s[e] = -INFINITY;
    }
  }
};
// #endregion

}  // namespace flash::inline FLASH_MACHINE
