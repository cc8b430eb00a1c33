// steps.hpp: the mask of dropout, written out by kernels that draw it as attention does, and the generator alone.
// Use: const std::vector<std::uint8_t> mask = asked_on(Where::Sim).mask(Fragment::Rows, {0.1f, seed}, {B, H, Sq, Sk});
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "phases/29-dropout/phase.hpp"
#include "phases/interface/where.hpp"

namespace flash::phase29 {

// How a warp of the kernel has its tile: as the forward pass, or as the backward pass, whose products are transposed.
enum class Fragment { Rows, Keys };
using Words = std::array<std::uint32_t, 4>;

struct Asked {
  // [B, H, Sq, Sk]: 1 where P is kept.
  std::vector<std::uint8_t> (*mask)(Fragment fragment, const Dropout& dropout,
                                    const std::array<std::int64_t, 4>& shape);
  Words (*philox)(const Words& counter, const std::array<std::uint32_t, 2>& key);
};

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<Asked, 3> asked_by_machine{};
inline const Asked& asked_on(Where where) {
  return asked_by_machine[static_cast<std::size_t>(where)];
}

}  // namespace flash::phase29
