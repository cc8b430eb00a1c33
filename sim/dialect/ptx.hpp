// ptx.hpp: PTX instructions that CUDA C++ has no word for: one function each, with the instruction's name.
// gpu/ptx.cuh has the same functions in inline assembly. Meaning: PTX ISA; what the simulator makes of it:
// sim/core/tensor_core.cpp (mma), warp.cpp (ldmatrix), copies.hpp (cp.async), named_barriers.hpp (bar). Use: through
// "gpu/kernel.cuh".
#pragma once

namespace flash::inline FLASH_MACHINE {

// D = A B + C on the tensor cores, for a whole warp: A [16,16] and B [16,8] of T (half or bfloat16), C and D [16,8].
// a: 4 registers of two elements each, b: 2; PTX ISA, "Matrix Fragments for mma.m16n8k16", says where they belong.
template <class T>
FLASH_INLINE void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const float (&c)[4],
                               FLASH_SITE) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, "mma_m16n8k16 multiplies 16-bit floats");
  const flash::simt::MmaRegisters registers{a, b, c, d};
  const unsigned type = std::is_same_v<T, __nv_bfloat16>;
  flash::simt::warp_op(flash::simt::WarpOp::mma, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&registers), site, type);
}

// Four matrices of 8 x 8 16-bit elements from shared memory. Lane 8 i + r gives the address of row r of matrix i (16
// bytes, a multiple of 16); each lane gets the elements 2 (lane % 4) and the next one of row lane / 4 of each matrix.
FLASH_INLINE void ldmatrix_of(unsigned (&registers)[4], const void* row, bool transposed, flash::simt::Site site) {
  flash::simt::LdmatrixRegisters exchanged;
  flash::simt::ldmatrix_row(row, exchanged, site);
  flash::simt::warp_op(flash::simt::WarpOp::ldmatrix, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&exchanged), site,
                       transposed);
  __builtin_memcpy(registers, exchanged.elements, sizeof exchanged.elements);
}
FLASH_INLINE void ldmatrix_x4(unsigned (&registers)[4], const void* row, FLASH_SITE) {
  ldmatrix_of(registers, row, false, site);
}
// The same of the transposed matrices: the elements 2 (lane % 4) and the next one of column lane / 4.
FLASH_INLINE void ldmatrix_x4_trans(unsigned (&registers)[4], const void* row, FLASH_SITE) {
  ldmatrix_of(registers, row, true, site);
}

// 2^x, at most 2 units in the last place off on a GPU; correctly rounded here. Subnormal results are 0.
FLASH_INLINE float ex2_approx_ftz(float x) {
  FLASH_COUNT(exps, 1);
  const float y = __builtin_exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}

// Each byte of the result is chosen among the eight of b:a by four bits of the selector: as by __byte_perm, but where
// the fourth is 1 all bits of it are the chosen byte's sign.
FLASH_INLINE unsigned prmt(unsigned a, unsigned b, unsigned selector) {
  const unsigned bytes = __byte_perm(a, b, selector & 0x7777);
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned byte = bytes >> 8 * i & 0xff, sign = byte >> 7 ? 0xff : 0;
    result |= (selector >> (4 * i + 3) & 1 ? sign : byte) << 8 * i;
  }
  return result;
}

// Begins to copy 16 bytes from global to shared memory, both multiples of 16; only the first `source_bytes` are read,
// zeros fill the rest. They are there for this thread after cp_async_wait, for others after a barrier behind that.
FLASH_INLINE void cp_async_16(void* shared, const void* global, unsigned source_bytes = 16, FLASH_SITE) {
  flash::simt::cp_async(shared, global, 16, source_bytes, site);
}
// The copies that this thread began since its last group become a group (perhaps an empty one).
FLASH_INLINE void cp_async_commit() {
  flash::simt::cp_async_commit();
}
// Waits until all but the last kPending groups of this thread are done.
template <int kPending>
FLASH_INLINE void cp_async_wait(FLASH_SITE) {
  flash::simt::cp_async_wait(kPending, site);
}

// Barriers 1 to 15 of the block, of so many threads (whole warps): the barrier completes when that many have come, by
// either call; those of bar_sync wait for it, those of bar_arrive go on. Orders memory like __syncthreads, which is
// barrier 0, between those that come and those that wait.
FLASH_INLINE void bar_sync(int barrier, int threads, FLASH_SITE) {
  const flash::simt::NamedBarrierOperands operands{barrier, threads};
  flash::simt::warp_op(flash::simt::WarpOp::bar_sync, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&operands), site);
}
FLASH_INLINE void bar_arrive(int barrier, int threads, FLASH_SITE) {
  const flash::simt::NamedBarrierOperands operands{barrier, threads};
  flash::simt::warp_op(flash::simt::WarpOp::bar_arrive, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&operands), site);
}

}  // namespace flash::inline FLASH_MACHINE
