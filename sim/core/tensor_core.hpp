// tensor_core.hpp: what mma.sync calculates, bit for bit as an H200 does it.
// Use: sim/core/warp.cpp hands over the registers of a warp's lanes when all of them have come to the instruction.
#pragma once
#include <array>
#include <cstdint>

#include "sim/core/simt.hpp"

namespace flash::simt {

enum class MmaType { half, bfloat16 };

// D = A B + C of one warp: A [16,16], B [16,8], C and D [16,8] in fp32.
void mma_m16n8k16(const std::array<MmaRegisters, 32>& lanes, MmaType type);

}  // namespace flash::simt
