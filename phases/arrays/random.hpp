// random.hpp: our own counter-based generator, so that every compiler and machine sees the same numbers.
// Philox-4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, §3.3 and Table 2).
// Element i of stream (seed, name) depends on i alone: no state, any order, any thread.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "sim/number.hpp"

namespace flash {

// One Philox block: 4 words from a 128-bit counter and a 64-bit key.
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * counter[0], b = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// A stream of numbers; `stream` tells Q, K, V … of one seed apart.
class Random {
 public:
  Random(std::uint64_t seed, std::uint32_t stream)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, stream_(stream) {}

  // U[0, 1), a multiple of 2^-24. `draw` gives independent numbers for the same element i.
  float uniform(std::uint64_t i, std::uint32_t draw = 0) const { return unit(block(i, draw)[0]); }

  // N(0, 1) by Box-Muller, evaluated in fp64 and rounded once, so that libm's last bit does not show.
  float normal(std::uint64_t i, std::uint32_t draw = 0) const {
    const auto w = block(i, draw);
    const double u = 1.0 - static_cast<double>(unit(w[0])), v = static_cast<double>(unit(w[1]));
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
  }

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t i, std::uint32_t draw) const {
    return philox({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), stream_, draw}, key_);
  }
  static float unit(std::uint32_t w) { return static_cast<float>(w >> 8) * 0x1p-24f; }

  std::array<std::uint32_t, 2> key_;
  std::uint32_t stream_;
};

// The contract's input distributions (those that are drawn element by element).
enum class Distribution { Normal, Uniform, Shifted, Outliers, Equal, Denormals };

inline const char* name(Distribution d) {
  static constexpr const char* names[] = {"N(0,1)", "uniform[0,1)", "N(1,1)", "outliers", "all equal", "denormals"};
  return names[static_cast<int>(d)];
}

// Element i of a tensor with this distribution.
inline float draw(const Random& random, Distribution d, std::uint64_t i) {
  switch (d) {
    case Distribution::Normal:
      return random.normal(i);
    case Distribution::Uniform:
      return random.uniform(i);
    case Distribution::Shifted:
      return 1.0f + random.normal(i);
    case Distribution::Outliers:  // N(0, 1) + N(0, 100)·Bernoulli(0.001): one element in a thousand is large
      return random.normal(i) + (random.uniform(i, 1) < 0.001f ? 10.0f * random.normal(i, 2) : 0.0f);
    case Distribution::Equal:
      return 1.0f;
    case Distribution::Denormals:
      return random.normal(i) * 0x1p-130f;  // below fp32's smallest normal, 2^-126
  }
  return 0.0f;
}

}  // namespace flash
