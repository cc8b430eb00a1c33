// Phase 26: sliding windows, on Hopper: the kernels of phases 19 and 24, which ask where a row's keys begin. New: the
// answers, in windowed.cuh and here; mma.cuh gives them to the kernels of phases 13 and 20.
// Run it: ./flash tour 26     Test it: ./flash test 26
#pragma once
#include "phases/19-beyond/attention.cuh"
#include "phases/24-backward-fused/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/26-windows/phase.hpp"
#include "phases/26-windows/windowed.cuh"

namespace flash::inline FLASH_MACHINE {

// #region window-query-range: which Q tiles see a K/V tile of phase 24
// As without a window, but for the end; no tile: all three numbers are that of the tiles.
template <int Br, int Bc, class Variant>
requires(Variant::windows) __device__ QueryRange query_range(int first_key, const Variant& band) {
  const QueryRange all = query_range<Br, Bc>(first_key, static_cast<const Band<int>&>(band));
  const int end = end_of_queries(band, first_key, Br, Bc);
  return end > all.first ? QueryRange{all.first, all.full, end} : QueryRange{all.end, all.end, all.end};
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE

namespace flash::phase19::inline FLASH_MACHINE {

// #region warpgroup: phase 19's warpgroups have rows of their own, and see other tiles than their neighbours
// `first`, `cut`: as in Keys. `behind`: so many tiles, which other warpgroups see, come behind its own.
template <class Variant>
requires(Variant::windows) struct OfWarpgroup<Variant> {
  int first, cut, behind = 0;
  __device__ static int number(int tile) { return tile; }
};
// #endregion

}  // namespace flash::phase19::inline FLASH_MACHINE

namespace flash::phase24::inline FLASH_MACHINE {

// #region share: what a share of phase 24 is to a Q tile
// The first share of a Q tile's dQ is that of the first K/V tile which the Q tile sees: it is stored, not added.
template <class Variant>
requires(Variant::windows) struct OfShare<Variant> {
  int width;       // how many queries see a key
  int cut;         // of Q tiles from that one on, as a share numbers them, not all rows see all keys
  int first_from;  // Q tiles from that one on see no K/V tile before this one

  template <int Br, int Bc>
  __device__ __forceinline__ void enter(int kv_tile, const Variant& band) {
    const int first_key = kv_tile * Bc;
    width = band.left + band.right + 1;
    const int row = max(first_key + band.left + 1, 0);  // the first that does not see the first key
    cut = row < band.Sq ? row / Br * band.group : 0x7fffffff;
    first_from = kv_tile > 0 ? end_of_queries(band, first_key - Bc, Br, Bc) * band.group : 0;
  }
  __device__ bool cuts(int tile) const { return tile >= cut; }
  template <int N>
  __device__ __forceinline__ void hide(float (&p)[N], const int (&from)[2]) const {
    hide_queries(p, from, width);
  }
  __device__ static int number(int tile) { return tile; }
  __device__ bool follows(const Share&, int tile) const { return tile < first_from; }
  __device__ static bool ends(const Share& share, int tile) { return tile < share.rounded_end; }
  __device__ const float* excess(const Share& share, int tile) const {
    return tile >= first_from ? share.row_excess : nullptr;
  }
};
// #endregion

}  // namespace flash::phase24::inline FLASH_MACHINE

namespace flash::phase26::inline FLASH_MACHINE {

// #region launch
struct Attention : phase19::Attention {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    phase19::Attention::launch<T, D, Br, Bc, Windowed<Grouped<int>>>(p);
  }
};
struct Gradients : phase24::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    launch_fused<T, D, Br, Bc, Windowed<Grouped<int>>>(p);
  }
};
// #endregion

}  // namespace flash::phase26::inline FLASH_MACHINE
