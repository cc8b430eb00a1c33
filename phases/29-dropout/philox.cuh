// philox.cuh: the generator of dropout in a kernel: Philox 4x32-10, as phases/arrays/random.hpp has it on the host, and
// which of the eight keys of a call are kept. docs/conventions.md defines it.
// Use: const unsigned flags = keeper.of_eight(j / 8, i, h, b);
#pragma once
#include "phases/interface/problem.hpp"

namespace flash::inline FLASH_MACHINE {

// #region philox: a counter of 128 bits and a key of 64 become four words
// Ten rounds of two products of 32 x 32 bits, of which both halves count (IMAD.WIDE), and two xors of three (LOP3). The
// keys of the rounds depend on the seed alone: once for a kernel.
__device__ __forceinline__ void philox(unsigned (&x)[4], unsigned key_0, unsigned key_1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * x[0], b = std::uint64_t{0xCD9E8D57u} * x[2];
    x[0] = static_cast<unsigned>(b >> 32) ^ x[1] ^ key_0, x[1] = static_cast<unsigned>(b);
    x[2] = static_cast<unsigned>(a >> 32) ^ x[3] ^ key_1, x[3] = static_cast<unsigned>(a);
    key_0 += 0x9E3779B9u, key_1 += 0xBB67AE85u;
  }
}
// #endregion

// #region keeper: two comparisons of 16 bits at once
// Keeps a key whose 16 bits are not less than the threshold. Both halves of a word at once: of x >= t the answer is in
// the highest bits of x, of x's other bits less t's, and of ~t: what two of the three say.
struct Keeper {
  unsigned key[2];      // the seed
  unsigned low, below;  // of the threshold, in both halves: its lower 15 bits; all ones where its highest bit is 0

  static Keeper of(const Dropout& dropout) {
    const unsigned t = dropout.threshold();
    return {{static_cast<unsigned>(dropout.seed), static_cast<unsigned>(dropout.seed >> 32)},
            (t & 0x7fff) * 0x10001u,
            t & 0x8000 ? 0 : 0xffffffffu};
  }
  // Bits 15 and 31: is the lower half, the upper half kept?
  __device__ __forceinline__ unsigned of_two(unsigned word) const {
    const unsigned rest = (word | 0x80008000u) - low;  // no half borrows of the other
    return (word & rest) | (below & (word | rest));
  }
  // Keys 8 · octet … + 7 of row i of head (b, h): bits 7 of the four bytes are for keys 0 … 3, bits 6 for keys 4 … 7.
  __device__ __forceinline__ unsigned of_eight(unsigned octet, unsigned i, unsigned h, unsigned b) const {
    unsigned x[4] = {octet, i, h, b};
    philox(x, key[0], key[1]);
    const unsigned first = __byte_perm(of_two(x[0]), of_two(x[1]), 0x7531);
    const unsigned last = __byte_perm(of_two(x[2]), of_two(x[3]), 0x7531);
    return (first & 0x80808080u) | (last >> 1 & 0x40404040u);
  }
};
// #endregion

}  // namespace flash::inline FLASH_MACHINE
