// spot.hpp: where in the program something happens, in one word: a program counter, that is what return_address() of a
// call is, or a source location. The bits between an address and the mark are the user's (sim/checks/keys.hpp).
// Use: spot(site); hooks take __builtin_return_address(0) for one.
#pragma once
#include <bit>
#include <cstdint>

#include "sim/core/simt.hpp"

namespace flash::simt {

using Spot = std::uintptr_t;
constexpr Spot kSourceLocation = Spot{1} << 63;  // it is one
constexpr int kAddressWidth = 48;
constexpr Spot kAddressBits = (Spot{1} << kAddressWidth) - 1;

inline Spot spot(const Site& site) {
  return std::bit_cast<std::uintptr_t>(site) | kSourceLocation;
}
inline Site site_at(Spot spot) {
  return std::bit_cast<Site>(spot & kAddressBits);
}

}  // namespace flash::simt
