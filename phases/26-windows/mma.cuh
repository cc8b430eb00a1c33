// Phase 26m: sliding windows by mma.sync: phases 13's and 20's kernels, which ask where a row's keys begin.
// attention.cuh is the same for Hopper.
// Run it: ./flash tour 26m     Test it: ./flash test 26
#pragma once
#include "phases/13-instruction-diet/attention.cuh"
#include "phases/20-backward-tensor-cores/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/26-windows/phase.hpp"
#include "phases/26-windows/windowed.cuh"

namespace flash::inline FLASH_MACHINE {

// #region load-seen: a K/V tile that begins before the first key that is read
// As phase 13's load_tile; zeros for rows before the range, too.
template <bool kWhole, int kThreads, int D, int Rows, class T>
__device__ void load_tile(std::uint16_t (&tile)[Rows][D], const Head<const T>& from, std::int64_t first,
                          KeyRange<std::int64_t> keys) {
  if (first >= keys.begin) return phase13::load_tile<kWhole, kThreads>(tile, from, first, keys.end);
  const auto row = [&](std::int64_t key) { return static_cast<int>(min(key - first, std::int64_t{Rows})); };
  const int begin = row(keys.begin), end = row(keys.end);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from.data) + first * from.stride;
  const bool in_pieces = in_pieces_of_8(from);
#pragma unroll 1
  for (int i = threadIdx.x * 8; i < Rows * D; i += kThreads * 8) {
    const int r = i / D, c = i % D;
    const bool inside = begin <= r && r < end;
    std::uint16_t* const to = &tile[r][swizzled(r, c)];
    if (in_pieces)
      cp_async_16(to, &bits[r * from.stride + c], inside && c < from.cols ? 16 : 0);
    else
      for (int e = 0; e < 8; ++e)
        to[e] = inside && c + e < from.cols ? bits[r * from.stride + c + e] : std::uint16_t{0};
  }
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE

namespace flash::phase20::inline FLASH_MACHINE {

// #region rows-window: the keys of a Q tile, in the kernel of dQ
template <class Variant>
requires(Variant::windows) struct RowsWindow<Variant> {
  KeyRange<std::int64_t> seen;
  std::int64_t begin,
      cut;  // the first tile's first key; tiles that begin before `cut` are not seen whole by the last row

  __device__ RowsWindow(std::int64_t first_row, std::int64_t last_row, int kKeys, const Variant& band)
      : seen(band.seen(first_row, last_row)),
        begin(seen.size() > 0 ? seen.begin / kKeys * kKeys : band.Sk),
        cut(band.begin(last_row)) {}
  __device__ const KeyRange<std::int64_t>& keys(std::int64_t) const { return seen; }
  __device__ bool cuts(std::int64_t first_key) const { return first_key < cut; }
};
// #endregion

}  // namespace flash::phase20::inline FLASH_MACHINE

namespace flash::phase26m::inline FLASH_MACHINE {

// #region launch-mma
struct Attention : phase13::Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase13::Attention::launch<T, D, Br, Bc, Windowed<Grouped<std::int64_t>>>(p);
  }
};
struct Gradients : phase20::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase20::Gradients::launch<T, D, Br, Bc, Windowed<Grouped<std::int64_t>>>(p);
  }
};
// #endregion

}  // namespace flash::phase26m::inline FLASH_MACHINE
