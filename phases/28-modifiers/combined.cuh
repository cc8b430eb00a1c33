// combined.cuh: the modifier for all that docs/conventions.md lets become of a score, which asks when it runs; and
// which modifier a problem gets.
// Use: with_modifier<D>(p, [&]<class Modifier>(const DeviceProblem<T>& scored) { … });
#pragma once
#include "phases/28-modifiers/bias.cuh"
#include "phases/28-modifiers/masks.cuh"
#include "phases/28-modifiers/modifiers.cuh"

namespace flash::inline FLASH_MACHINE {

// #region combined
template <class T>
struct Combined {
  Softcap softcap;
  Alibi alibi;
  PairArray<T> bias;
  Masks masks;
  const float* sinks;  // [H]
  float scale, cap;    // cap: 0 where there is none

  static Combined of(const DeviceProblem<T>& p) {
    const AnyProblem& all = *p.all;
    return {Softcap::of(p),
            Alibi::of(p),
            PairArray<T>::of(all.bias),
            Masks::of(p),
            static_cast<const float*>(all.sinks.data),
            p.scale,
            all.options.softcap};
  }
  template <class U>
  static float unit(const DeviceProblem<U>&) {
    return 1;
  }
  __device__ bool bends() const { return cap != 0; }
  __device__ float sink(int h) const { return sinks ? sinks[h] : -INFINITY; }
  __device__ bool hides_block(int b, int h, std::int64_t row, std::int64_t column) const {
    return masks.hides_block(b, h, row, column);
  }

  template <bool kTransposed, int N, class Note>
  __device__ __forceinline__ void apply(float (&s)[N], const Note& note, int b, int h, int i, int j) const {
    if (cap != 0) softcap.apply<kTransposed>(s, note, b, h, i, j);
    const float factor = cap != 0 ? cap : scale;
#pragma unroll
    for (float& x : s) x *= factor;
    if (masks.Sk == 0) return;  // a tile of keys that do not exist
    if (alibi.slopes) {
      const float slope = alibi.slope_of(b, h);
      const int distance = i + alibi.shift - j;
#pragma unroll
      for (int e = 0; e < N; ++e)
        s[e] =
            fmaf(-slope, fabsf(static_cast<float>(distance + query_of<kTransposed>(e) - key_of<kTransposed>(e))), s[e]);
    }
    if (bias.data) {
      const Patch<T, kTransposed> of_pairs(bias.head(b, h), bias.stride, i, j, masks.Sq, masks.Sk);
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (of_pairs.has(e)) {
          const float x = widen(of_pairs[e]);
          s[e] = x == -INFINITY ? -INFINITY : s[e] + x;  // it hides, NaN too
        }
    }
    masks.apply<kTransposed>(s, note, b, h, i, j);
  }
};
// #endregion

// #region choice
// Calls launch<Modifier>(p) with the modifier that does what the problem asks. What is often asked for alone has a
// kernel of its own, where D is what models have most.
template <int D, class T, class F>
void with_modifier(const DeviceProblem<T>& p, const F& launch) {
  const AnyProblem& all = *p.all;
  const bool masks = all.allowed.given() || all.document_q.given() || all.blocks.given();
  const bool adds = all.bias.given() || all.sinks.given(), bends = all.options.softcap != 0;
  if constexpr (D == 128) {
    if (bends && !masks && !adds && !all.slopes.given())
      return launch.template operator()<Softcap>(with_scores_of<Softcap>(p));
    const bool near = p.band.Sq < kMostQuick / 2 && p.band.Sk<kMostQuick / 2, positive = p.scale> 1e-30f;
    if (all.slopes.given() && !masks && !adds && !bends && near && positive)
      return launch.template operator()<Alibi>(with_scores_of<Alibi>(p));
    if (masks && !all.slopes.given() && !adds && !bends && positive)
      return launch.template operator()<Masks>(with_scores_of<Masks>(p));
    if (all.bias.given() && Bias<T>::takes(all.bias) && !all.sinks.given() && !masks && !all.slopes.given() && !bends)
      return launch.template operator()<Bias<T>>(with_scores_of<Bias<T>>(p));
  }
  launch.template operator()<Combined<T>>(with_scores_of<Combined<T>>(p));
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
