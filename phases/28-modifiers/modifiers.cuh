// modifiers.cuh: softcap and ALiBi, as fast as they can be: what a reader would write in five lines (own.cu) is done
// for all of a lane's scores at once. The modifier for all that may be asked together is in combined.cuh.
// Use: phase19::Attention::launch<T, D, Br, Bc, Modified<Grouped<int>, Softcap>>(with_scores_of<Softcap>(p));
#pragma once
#include "phases/28-modifiers/modified.cuh"

namespace flash::inline FLASH_MACHINE {

// #region tanh
// tanh(x) = x · (1 + z · (a + z · (b + z · c))) with z = x², whose coefficients are minimax fits: off by 7.1e-7 of it
// up to 0.5; without c by 5.5e-7 up to 0.25. Beyond it comes from exp. The instruction tanh.approx is off by 2^-11.
// LSE may be off by 2e-6.
inline constexpr float kNear = 0.5f, kNearA = -3.33281606e-1f, kNearB = 1.32053599e-1f, kNearC = -4.47506458e-2f;
inline constexpr float kNearer = 0.25f, kNearerA = -3.33245724e-1f, kNearerB = 1.28764212e-1f;
__device__ __forceinline__ float tanh_by_exp(float x) {
  const float e = ex2_approx_ftz(fminf(fabsf(x), 20.0f) * 2.88539008f);  // 2 log2 e
  return copysignf(1 - __fdividef(2.0f, 1 + e), x);
}
// #endregion

// #region softcap
// s becomes cap · tanh(s / cap). Few tiles have a score that is far from 0, if cap is what models have; so all of a
// lane's are looked at first. The coefficients have scale / cap in them: tanh comes from q·k itself.
struct Softcap {
  float inverse, a, b, c;    // scale / cap; tanh(inverse · x) = x · (inverse + z · (a + z · (b + z · c))), z = x²
  int near_top, near_low;    // bits of the largest number, and of the smallest, that are near enough for that
  float nearer_a, nearer_b;  // the same of the shorter form;
  float exponent_0, exponent_a, exponent_b;  // and times log2 e · cap
  int nearer_top, nearer_low;

  static float cap(const AnyProblem& p) { return p.options.softcap; }
  template <class T>
  static float unit(const DeviceProblem<T>& p) {
    return cap(*p.all);
  }
  template <class T>
  static Softcap of(const DeviceProblem<T>& p) {
    Softcap x{};
    const double k = p.scale / static_cast<double>(cap(*p.all)), e = k * scale_log2(cap(*p.all));
    const auto number = [](double value) { return static_cast<float>(value); };
    x.inverse = number(k), x.a = number(kNearA * k * k * k), x.b = number(kNearB * std::pow(k, 5));
    x.c = number(kNearC * std::pow(k, 7));
    x.nearer_a = number(kNearerA * k * k * k), x.nearer_b = number(kNearerB * std::pow(k, 5));
    x.exponent_0 = number(e), x.exponent_a = number(kNearerA * k * k * e);
    x.exponent_b = number(kNearerB * std::pow(k, 4) * e);
    // Only what grows with q·k has its maximum where that has it: else nothing is near enough for quick_softmax.
    const auto bits = [](double value) { return std::bit_cast<int>(static_cast<float>(std::min(value, 1e30))); };
    x.near_top = bits(kNear / std::abs(k)), x.near_low = bits(-kNear / std::abs(k));
    x.nearer_top = k > 0 ? bits(kNearer / k) : -1, x.nearer_low = k > 0 ? bits(-kNearer / k) : 0;
    return x;
  }
  __device__ constexpr bool bends() const { return true; }

  template <bool kTransposed, int N, class Note>
  __device__ __forceinline__ void apply(float (&s)[N], const Note& note, int, int, int, int) const {
    int top[2];
    unsigned low;
    integer_extremes(s, top, low);
    const auto near = [&](float x) {
      const float z = x * x;
      return x * fmaf(fmaf(fmaf(c, z, b), z, a), z, inverse);
    };
    // What is near has the same bits either way, and NaN stays.
    if (__all_sync(0xffffffffu, max(top[0], top[1]) <= near_top && low <= static_cast<unsigned>(near_low)))
      apply_by(s, note, near);
    else
      apply_by(s, note,
               [&](float x) { return fabsf(x) > __int_as_float(near_top) ? tanh_by_exp(x * inverse) : near(x); });
  }
  template <int N, class Note, class F>
  __device__ __forceinline__ static void apply_by(float (&s)[N], const Note& note, const F& f) {
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      s[e] = f(s[e]), s[e + 1] = f(s[e + 1]);
      note(e, fmaf(-s[e], s[e], 1.0f), fmaf(-s[e + 1], s[e + 1], 1.0f));
    }
  }

  // For quick_softmax: exp's argument comes from q·k in four instructions.
  template <bool kTransposed, int N>
  __device__ __forceinline__ static bool lean(const float (&)[N], float (&offset)[2], int, int) {
    offset[0] = offset[1] = 0;
    return true;
  }
  __device__ __forceinline__ bool holds(const int (&top)[2], unsigned low) const {
    return max(top[0], top[1]) <= nearer_top && low <= static_cast<unsigned>(nearer_low);
  }
  __device__ __forceinline__ float bent(float x) const {
    const float z = x * x;
    return x * fmaf(fmaf(nearer_b, z, nearer_a), z, inverse);
  }
  __device__ __forceinline__ float exponent(float x, float, float base) const {
    const float z = x * x;
    return fmaf(x, fmaf(fmaf(exponent_b, z, exponent_a), z, exponent_0), -base);
  }
  template <int N>
  __device__ __forceinline__ void finish(float (&s)[N], const float (&)[2]) const {
    apply<false>(s, NoNote(), 0, 0, 0, 0);
  }
};
// #endregion

// #region alibi
// A whole number between -2^22 and 2^22 as fp32. The instruction that converts runs at an eighth of the rate of these.
inline constexpr int kMostQuick = 1 << 22;
__device__ __forceinline__ float quick_float(int number) {
  return __int_as_float(number + 0x4b400000) - 12582912.0f;  // 1.5 · 2^23 and its bits
}

// s becomes s - slope · |i + Sk - Sq - j|; a slope for each head, and batch entry. In a tile on one side of the
// diagonal that is a number for each column, known when the kernel is compiled but for the slope, and one for each row.
struct Alibi {
  const float* slopes;  // [B|1, H]
  std::int64_t b_stride, h_stride;
  int shift;      // Sk - Sq
  float inverse;  // 1 / scale
  float slope;    // of the head, over scale

  template <class T>
  static float unit(const DeviceProblem<T>& p) {
    return p.scale;
  }
  template <class T>
  static Alibi of(const DeviceProblem<T>& p) {
    const AnyView& slopes = p.all->slopes;
    return {static_cast<const float*>(slopes.data),
            slopes.B() == 1 ? 0 : slopes.stride[0],
            slopes.stride[1],
            static_cast<int>(p.band.Sk - p.band.Sq),
            1 / p.scale,
            0};
  }
  __device__ constexpr bool bends() const { return false; }
  __device__ float slope_of(int b, int h) const { return slopes[b * b_stride + h * h_stride]; }
  __device__ __forceinline__ void enter(int b, int h) { slope = slope_of(b, h) * inverse; }

  // Where all elements are on one side of the diagonal: s becomes score - offset, which is 0 for the nearest to it.
  template <bool kTransposed, int N>
  __device__ __forceinline__ bool lean(float (&s)[N], float (&offset)[2], int i, int j) const {
    constexpr int kLast = column_of(N - 1);
    const int first = kTransposed ? j - i - shift : i + shift - j;  // from the first column to the diagonal, in row 0
    const bool falls = __all_sync(0xffffffffu, first >= kLast), rises = __all_sync(0xffffffffu, first + 8 <= 0);
    if (!falls && !rises) return false;
    if (falls)
#pragma unroll
      for (int e = 0; e < N; ++e) s[e] = fmaf(slope, static_cast<float>(column_of(e) - kLast), s[e]);
    else
#pragma unroll
      for (int e = 0; e < N; ++e) s[e] = fmaf(-slope, static_cast<float>(column_of(e)), s[e]);
#pragma unroll
    for (int r = 0; r < 2; ++r) offset[r] = -slope * fabsf(static_cast<float>(first + 8 * r - (falls ? kLast : 0)));
    return true;
  }
  template <bool kTransposed, int N, class Note>
  __device__ __forceinline__ void apply(float (&s)[N], const Note&, int, int, int i, int j) const {
    float offset[2];
    if (lean<kTransposed>(s, offset, i, j)) return finish(s, offset);
    const int distance = i + shift - j;
#pragma unroll
    for (int e = 0; e < N; ++e)
      s[e] = fmaf(-slope, fabsf(quick_float(distance + query_of<kTransposed>(e) - key_of<kTransposed>(e))), s[e]);
  }
  __device__ __forceinline__ static bool holds(const int (&)[2], unsigned) {
    return true;
  }
  __device__ __forceinline__ static float bent(float x) {
    return x;
  }
  __device__ __forceinline__ static float exponent(float x, float c, float base) {
    return fmaf(x, c, -base);
  }
  template <int N>
  __device__ __forceinline__ static void finish(float (&s)[N], const float (&offset)[2]) {
#pragma unroll
    for (int e = 0; e < N; ++e) s[e] += offset[row_of(e)];
  }
};
// #endregion

}  // namespace flash::inline FLASH_MACHINE
