// tensor_core.hpp: what mma.sync and wgmma calculate, bit for bit as an H200 does it.
// Use: sim/core/warp.cpp hands over the registers of a warp's lanes when all of them have come to the instruction,
// sim/core/warpgroup.cpp the operands of a warpgroup.
#pragma once
#include <array>
#include <cstdint>

#include "sim/core/simt.hpp"

namespace flash::simt {

enum class MmaType { half, bfloat16 };
constexpr int kMmaDepth = 16;  // columns of A, rows of B

// D = A B + C of one warp: A [16,16], B [16,8], C and D [16,8] in fp32.
void mma_m16n8k16(const std::array<MmaRegisters, 32>& lanes, MmaType type);

// D += A B of a warpgroup, the same sum of 17 terms: A [16][64] by columns, B [columns][16] by columns, D [columns][64]
// by columns, aligned to 32 bytes. 8 to 256 columns, a multiple of 8.
void wgmma_m64nNk16(const std::uint16_t* a, const std::uint16_t* b, float* d, int columns, MmaType type);

// The same for one element of D: a is A's row, b is B's column, c is C's element. The rule in plain words, slowly.
float mma_element(const std::uint16_t (&a)[kMmaDepth], const std::uint16_t (&b)[kMmaDepth], float c, MmaType type);

}  // namespace flash::simt
