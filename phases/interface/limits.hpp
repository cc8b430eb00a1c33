// limits.hpp: the limits that every phase has, and the names of axes in messages.
// Use: refuse(name + "'s " + axis_names[2], …)
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "sim/error.hpp"

namespace flash {

inline constexpr std::int64_t max_head_dim = 256;
inline constexpr std::int64_t max_block = 1 << 20;  // rows of a tile; keeps the product of two tile sizes far from 2^63

inline constexpr const char* axis_names[] = {"batch size B", "number of heads H", "sequence length S",
                                             "head dimension D"};

inline std::string shape_text(const std::array<std::int64_t, 4>& s) {
  std::string text = "[";
  for (int i = 0; i < 4; ++i) text += (i ? ", " : "") + std::to_string(s[i]);
  return text + "]";
}

}  // namespace flash
