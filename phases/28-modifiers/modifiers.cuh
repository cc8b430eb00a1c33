// modifiers.cuh: the modifiers that phase 28 gives: softcap, ALiBi, and one for all that docs/conventions.md has,
// together, which asks when it runs. What a modifier must have is in modified.cuh.
// Use: with_modifier(p, [&]<class Modifier>(const DeviceProblem<T>& natural) { … });
#pragma once
#include "phases/28-modifiers/modified.cuh"

namespace flash::inline FLASH_MACHINE {

// #region tanh
// tanh, off by 1.2 · 2^-24 of it up to 0.6, by the Taylor form x + x³ · q(x²), whose coefficients are a minimax fit,
// and by some 2 · 2^-24 beyond, from exp. The instruction tanh.approx is off by 2^-11, which LSE's bar does not allow.
inline constexpr float kNear = 0.6f;
__device__ __forceinline__ float tanh_near(float x) {
  const float z = x * x;
  float q = -5.89515828e-3f;
  q = fmaf(q, z, 2.07959712e-2f), q = fmaf(q, z, -5.37838303e-2f);
  q = fmaf(q, z, 1.33319244e-1f), q = fmaf(q, z, -3.33332986e-1f);
  return fmaf(q * z, x, x);
}
__device__ __forceinline__ float tanh_of(float x) {
  const float far = 1 - __fdividef(2.0f, 1 + ex2_approx_ftz(fabsf(x) * 2.88539008f));  // 2 log2 e
  return fabsf(x) < kNear ? tanh_near(x) : copysignf(far, x);
}
// #endregion

// #region softcap
// s becomes cap · tanh(s / cap). In five lines a reader would write operator() and derivative() with tanh_of; this one
// looks at all elements first, since few tiles have a score that is far.
struct Softcap {
  float cap, inverse;

  template <class T>
  static Softcap of(const DeviceProblem<T>& p) {
    const float cap = p.all->options.softcap;
    return {cap, 1 / cap};
  }
  __device__ bool bends() const { return true; }

  template <bool kTransposed, int N, class Note>
  __device__ __forceinline__ void apply(float (&s)[N], const Note& note, int, int, int, int) const {
    const float most = kNear * cap;
    bool far = false;
#pragma unroll
    for (const float x : s) far |= !(fabsf(x) < most);
    if (__any_sync(0xffffffffu, far))
      apply_by(s, note, tanh_of);
    else
      apply_by(s, note, tanh_near);
  }
  template <int N, class Note, class F>
  __device__ __forceinline__ void apply_by(float (&s)[N], const Note& note, const F& f) const {
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const float left = f(s[e] * inverse), right = f(s[e + 1] * inverse);
      note(e, 1 - left * left, 1 - right * right);
      s[e] = cap * left, s[e + 1] = cap * right;
    }
  }
};
// #endregion

// #region alibi
// A whole number between -2^22 and 2^22 as fp32. The instruction that converts runs at an eighth of the rate of these.
inline constexpr int kMostQuick = 1 << 22;
__device__ __forceinline__ float quick_float(int number) {
  return __int_as_float(number + 0x4b400000) - 12582912.0f;  // 1.5 · 2^23 and its bits
}

// s becomes s - slope · |i + Sk - Sq - j|; a slope for each head, and batch entry.
struct Alibi {
  const float* slopes;  // [B|1, H]
  std::int64_t b_stride, h_stride;
  int shift;  // Sk - Sq

  template <class T>
  static Alibi of(const DeviceProblem<T>& p) {
    const AnyView& slopes = p.all->slopes;
    return {static_cast<const float*>(slopes.data), slopes.B() == 1 ? 0 : slopes.stride[0], slopes.stride[1],
            static_cast<int>(p.band.Sk - p.band.Sq)};
  }
  __device__ constexpr bool bends() const { return false; }
  __device__ float slope(int b, int h) const { return slopes[b * b_stride + h * h_stride]; }

  template <bool kTransposed, int N, class Note>
  __device__ __forceinline__ void apply(float (&s)[N], const Note&, int b, int h, int i, int j) const {
    const float slope = this->slope(b, h);
    const int distance = i + shift - j;
#pragma unroll
    for (int e = 0; e < N; ++e)
      s[e] = fmaf(-slope, fabsf(quick_float(distance + query_of<kTransposed>(e) - key_of<kTransposed>(e))), s[e]);
  }
};
// #endregion

// #region combined
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

// All that docs/conventions.md lets become of a score: softcap, ALiBi, bias, then mask and documents; and sinks.
template <class T>
struct Combined {
  Softcap softcap;  // its cap is 0 where there is none
  Alibi alibi;
  PairArray<T> bias;
  PairArray<std::uint8_t> allowed;
  const std::int32_t *document_q, *document_k;
  std::int64_t q_stride, k_stride;  // from one batch entry to the next
  const float* sinks;               // [H]
  int Sq, Sk;

  static Combined of(const DeviceProblem<T>& p) {
    const AnyProblem& all = *p.all;
    const auto stride = [](const AnyView& view) { return view.shape[0] == 1 ? 0 : view.stride[0]; };
    return {Softcap::of(p),
            Alibi::of(p),
            PairArray<T>::of(all.bias),
            PairArray<std::uint8_t>::of(all.allowed),
            static_cast<const std::int32_t*>(all.document_q.data),
            static_cast<const std::int32_t*>(all.document_k.data),
            stride(all.document_q),
            stride(all.document_k),
            static_cast<const float*>(all.sinks.data),
            static_cast<int>(p.band.Sq),
            static_cast<int>(p.band.Sk)};
  }
  __device__ bool bends() const { return softcap.cap != 0; }
  __device__ float sink(int h) const { return sinks ? sinks[h] : -INFINITY; }

  template <bool kTransposed, int N, class Note>
  __device__ __forceinline__ void apply(float (&s)[N], const Note& note, int b, int h, int i, int j) const {
    if (softcap.cap != 0) softcap.apply<kTransposed>(s, note, b, h, i, j);
    if (Sk == 0) return;  // a tile of keys that do not exist
    // Rows and keys beyond the end count as the last ones: whatever becomes of them, nobody sees it.
    const auto query = [&](int e) { return min(i + query_of<kTransposed>(e), Sq - 1); };
    const auto key = [&](int e) { return min(j + key_of<kTransposed>(e), Sk - 1); };
    if (alibi.slopes) {
      const float slope = alibi.slope(b, h);
#pragma unroll
      for (int e = 0; e < N; ++e) s[e] = fmaf(-slope, static_cast<float>(abs(query(e) + alibi.shift - key(e))), s[e]);
    }
    if (bias.data) {
      const T* const of_head = bias.head(b, h);
#pragma unroll
      for (int e = 0; e < N; ++e) {
        const float x = widen(of_head[query(e) * bias.stride + key(e)]);
        s[e] = x == -INFINITY ? -INFINITY : s[e] + x;  // it hides, NaN too
      }
    }
    if (allowed.data) {
      const std::uint8_t* const of_head = allowed.head(b, h);
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (of_head[query(e) * allowed.stride + key(e)] == 0) s[e] = -INFINITY;
    }
    if (document_q) {
      const std::int32_t *const of_rows = document_q + b * q_stride, *const of_keys = document_k + b * k_stride;
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (of_rows[query(e)] != of_keys[key(e)]) s[e] = -INFINITY;
    }
  }
};
// #endregion

// #region choice
// Calls launch<Modifier>(p) with the modifier that does what the problem asks. What is often asked for alone has a
// kernel of its own, where D is what models have most.
template <int D, class T, class F>
void with_modifier(const DeviceProblem<T>& p, const F& launch) {
  const AnyProblem& all = *p.all;
  const bool others = all.bias.given() || all.allowed.given() || all.document_q.given() || all.sinks.given();
  const DeviceProblem<T> natural = with_natural_scores(p);
  if constexpr (D == 128) {
    if (!others && !all.slopes.given()) return launch.template operator()<Softcap>(natural);
    if (!others && all.options.softcap == 0 && p.band.Sq < kMostQuick / 2 && p.band.Sk < kMostQuick / 2)
      return launch.template operator()<Alibi>(natural);
  }
  launch.template operator()<Combined<T>>(natural);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
