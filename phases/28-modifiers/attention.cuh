// Phase 28: modified scores, on Hopper: the kernels of phases 19 and 24, which hand S to a modifier. New: the hook, in
// modified.cuh; modifiers; gradients of bias and sinks; lists of tiles. mma.cuh: the same for phases 13 and 20.
// Run it: ./flash tour 28     Test it: ./flash test 28
#pragma once
#include "phases/19-beyond/attention.cuh"
#include "phases/24-backward-fused/attention.cuh"
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/28-modifiers/gradients.cuh"
#include "phases/28-modifiers/lists.cuh"
#include "phases/28-modifiers/phase.hpp"

namespace flash::inline FLASH_MACHINE {

// #region load-listed: K/V tiles as phases 17 to 19 load them, by a list
// What they take for row n · Bc is in the list's tile n.
template <int Bc>
struct ListedPlace {
  Place first;
  const int* list;
  __device__ Place operator+(int rows) const { return first + list[2 + rows / Bc] * Bc; }
};
template <int Br, int Bc, class Tiles, class CursorOfK, class CursorOfV, class Variant>
requires(Variant::skips) __device__
    void load_keys_of_all(Tiles& tiles, CursorOfK K, CursorOfV V, const TensorMap* K_map, const TensorMap* V_map,
                          const Variant& band, int H) {
  for (unsigned parity = 0;; parity ^= 1) {
    mbarrier_wait(&tiles.mail.full, parity);
    const Work work = tiles.mail.work;
    if (work.head < 0) return;
    const int* const list = band.list_of_rows(work.head / H, work.head % H, work.q_tile);
    const int count = max(list[0], 1);  // no tile: one of zeros, from beyond the tensor's end
    const ListedPlace<Bc> at{band.keys(work.head, H, list[0] > 0 ? 0 : 0x7fff0000), list};
    load_keys(tiles, K, V, K_map, V_map, count, at, [&](int tile) {
      if (tile == min(2, count - 1)) mbarrier_arrive(&tiles.mail.empty);
    });
  }
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE

namespace flash::phase19::inline FLASH_MACHINE {

// #region warpgroup-listed: all warpgroups of phase 19 have the tiles of their list
template <class Variant>
requires(Variant::skips) struct OfWarpgroup<Variant> {
  static constexpr int cut = 0;
  const int* list;
  __device__ int number(int tile) const { return list[2 + tile]; }
};
// #endregion

}  // namespace flash::phase19::inline FLASH_MACHINE

namespace flash::inline FLASH_MACHINE {

// #region bias-rooms: behind the tiles of phase 19 at D = 128
struct TilesAndBias {
  phase19::Tiles<128, 128, 128> tiles;
  BiasRooms bias;
};
template <class T>
__device__ __forceinline__ BiasRooms& bias_rooms() {
  return shared<TilesAndBias>().bias;
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE

namespace flash::phase24::inline FLASH_MACHINE {

// #region share-listed: a share of phase 24 has the Q tiles of its list, and what their ranks say
template <class Variant>
requires(Variant::skips) struct OfShare<Variant> {
  const int* list;

  __device__ static constexpr bool cuts(int) { return false; }
  template <int N>
  __device__ __forceinline__ static void hide(float (&p)[N], const int (&from)[2]) {
    hide_queries(p, from);
  }
  __device__ int number(int tile) const { return list[2 + 2 * tile]; }
  __device__ bool follows(const Share&, int tile) const { return list[3 + 2 * tile] > 1; }
  __device__ bool ends(const Share&, int tile) const { return list[3 + 2 * tile] % 2 == 1; }
  __device__ const float* excess(const Share& share, int tile) const {
    return follows(share, tile) ? nullptr : share.row_excess;
  }
};
// #endregion

}  // namespace flash::phase24::inline FLASH_MACHINE

namespace flash::phase28::inline FLASH_MACHINE {

// #region launch
using Base = Grouped<int>;  // what the phase before gives
template <class Modifier>
using Listed = Skipping<Modified<Base, Modifier>>;

struct Attention : phase19::Attention {
  static Blocks preferred(const AnyProblem& p) {
    const int D = features.padded(p.widest());
    return D == 64 ? Blocks{192, 128} : D == 128 ? Blocks{128, 128} : Blocks{128, 80};
  }
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    with_modifier<D>(p, [&]<class Modifier>(const DeviceProblem<T>& scored) {
      // Phase 18's kernel has no registers for arrays: where others are asked for, phase 19's own has D = 128, too.
      if constexpr (HasLean<Modifier>)
        phase19::Attention::launch<T, D, Br, Bc, Modified<Base, Modifier>>(scored);
      else if constexpr (Fetches<Modifier>)
        phase19::Attention::launch_here<T, D, Br, Bc, Modified<Base, Modifier>>(scored);
      else
        with_lists<Base, Blocks{Br, Bc}>(scored, p.workspace[1], false, [](const DeviceProblem<T>& listed) {
          phase19::Attention::launch_here<T, D, Br, Bc, Listed<Modifier>>(listed);
        });
    });
  }
};
struct Gradients : phase24::Gradients {
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    BiasGradient gradient = BiasGradient::Left;
    with_modifier<D>(p, [&]<class Modifier>(const DeviceProblem<T>& scored) {
      if constexpr (Fetches<Modifier>) gradient = bias_gradient_of(*p.all, p.mode);
      if (gradient == BiasGradient::Added) clear_bias_gradient(p);
      if constexpr (HasLean<Modifier> || Fetches<Modifier>)
        launch_fused<T, D, Br, Bc, Modified<Base, Modifier>>(scored);
      else
        with_lists<Base, Blocks{Br, Bc}, Blocks{Br, Bc}>(
            scored, p.workspace[6], true,
            [](const DeviceProblem<T>& listed) { launch_fused<T, D, Br, Bc, Listed<Modifier>>(listed); });
    });
    const auto* const pieces = static_cast<const phase23::RowPiece*>(p.workspace[2]);
    launch_score_gradients<D, Modified<Base, Combined<T>>>(with_scores_of<Combined<T>>(p), pieces->delta,
                                                           sizeof *pieces / 4, gradient);
  }
};
// #endregion

}  // namespace flash::phase28::inline FLASH_MACHINE
