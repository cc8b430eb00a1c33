// softmax_row.hpp: the two passes of softmax over a row of scores, a register full of numbers at once: half the time of
// Eigen's max, exp and sum, which are passes of their own, and whose exp also minds what cannot occur here.
// Use: m = scale_and_max(S.data(), n, scale);  l = exp_minus(S.data(), n, m);    NaN stays NaN
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace flash {

// #region exponential: of a register full of numbers
using Floats [[gnu::vector_size(__BIGGEST_ALIGNMENT__)]] = float;  // a register: 4, 8 (AVX) or 16 (AVX-512) numbers
using FloatBits [[gnu::vector_size(__BIGGEST_ALIGNMENT__)]] = std::uint32_t;
inline constexpr int floats_wide = sizeof(Floats) / sizeof(float);

// exp(x) for x <= 0; 0 below -87.7, where fp32 loses precision. Off by less than 6e-8 · (2 - x) of itself.
inline Floats exp_of_negative(Floats x) {
  x = x < -88.0f ? Floats{} - 88.0f : x;  // NaN is not below
  // exp(x) = 2^k · exp(r) with k = round(x / ln 2) and r = x - k · ln 2. Adding `shift` rounds to an integer and leaves
  // k + 127 in the low bits: moved to where a float has its exponent they are 2^k.
  constexpr float shift = 0x1.8p23f + 127;
  const Floats shifted = x * 1.44269504f + shift, k = shifted - shift, r = x - k * 0.693147181f;
  Floats y = r * 1.9875691500e-4f + 1.3981999507e-3f;  // Cephes' polynomial
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  return y * reinterpret_cast<Floats>(reinterpret_cast<FloatBits>(shifted) << 23);
}

// #endregion

// #region passes: over a row of scores
// x_i = x_i · scale for i < n; returns their maximum, -inf for n = 0. NaN is not a maximum.
inline float scale_and_max(float* x, std::int64_t n, float scale) {
  float m = -std::numeric_limits<float>::infinity();
  Floats v, top = Floats{} + m;
  std::int64_t i = 0;
  for (; i + floats_wide <= n; i += floats_wide) {
    std::memcpy(&v, x + i, sizeof v);
    v *= scale;
    std::memcpy(x + i, &v, sizeof v);
    top = v > top ? v : top;
  }
  for (int j = 0; j < floats_wide; ++j) m = std::max(m, top[j]);
  for (; i < n; ++i) m = std::max(m, x[i] *= scale);
  return m;
}

// x_i = exp(x_i - m) for i < n; returns their sum. Needs x_i <= m.
inline float exp_minus(float* x, std::int64_t n, float m) {
  Floats v, sum{};
  std::int64_t i = 0;
  for (; i + floats_wide <= n; i += floats_wide) {
    std::memcpy(&v, x + i, sizeof v);
    v = exp_of_negative(v - m);
    std::memcpy(x + i, &v, sizeof v);
    sum += v;
  }
  if (i < n) {
    const std::size_t rest = static_cast<std::size_t>(n - i) * sizeof(float);
    v = Floats{} - std::numeric_limits<float>::infinity();  // past the end: exp is 0
    std::memcpy(&v, x + i, rest);
    v = exp_of_negative(v - m);
    std::memcpy(x + i, &v, rest);
    sum += v;
  }
  float total = 0;
  for (int j = 0; j < floats_wide; ++j) total += sum[j];
  return total;
}
// #endregion

}  // namespace flash
