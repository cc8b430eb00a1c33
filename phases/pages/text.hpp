// text.hpp: numbers as people read them.
// Use:  grouped(16777216) -> "16,777,216"
#pragma once
#include <cstdint>
#include <string>

namespace flash {

inline std::string grouped(std::uint64_t n) {
  std::string text = std::to_string(n);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace flash
