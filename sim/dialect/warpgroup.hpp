// warpgroup.hpp: Hopper's matrix products of a warpgroup (wgmma) and the words around them: one function each, with the
// instruction's name. gpu/hopper.cuh has the same functions in inline assembly. Meaning: PTX ISA 9.0, sections
// "Asynchronous warpgroup level matrix instructions", "stmatrix", "setmaxnreg"; what the simulator makes of it:
// sim/core/warpgroup.hpp. A warpgroup is four warps, the first a multiple of four. Where "the warpgroup" does something
// all its 128 threads must come to the same call. Use: through "gpu/hopper.cuh".
#pragma once

namespace flash::inline FLASH_MACHINE {

// Where a matrix lies in shared memory, and how: "Matrix Descriptor Format". The pattern is the 128-byte swizzle, which
// a copy by TMA makes: rows of 128 bytes, that is 64 elements, of which 16-byte chunk c of row r lies at chunk
// c ^ (r % 8). A tile of wider rows is several such panels. Tiles begin at multiples of 1024 bytes.
struct MatrixDescriptor {
  unsigned low, high;
  // The matrix that begins so many bytes further on, a multiple of 16: the next 16 columns of a K-major panel are 32
  // bytes on, the next 16 rows of an MN-major one 2048.
  FLASH_INLINE MatrixDescriptor operator+(unsigned bytes) const { return {low + (bytes >> 4), high}; }
};
// K-major: eight rows are 1024 bytes, the next eight follow `stride_bytes` on; `leading_bytes` has no meaning.
// MN-major: the next 64 columns follow `leading_bytes` on, the next eight rows `stride_bytes`. All are multiples of 16;
// an address that is not, or is not in shared memory, is a finding.
FLASH_INLINE MatrixDescriptor matrix_descriptor(const void* tile, unsigned leading_bytes = 16,
                                                unsigned stride_bytes = 1024, FLASH_SITE) {
  const std::uint64_t bits = flash::simt::matrix_descriptor(tile, leading_bytes, stride_bytes, site);
  return {static_cast<unsigned>(bits), static_cast<unsigned>(bits >> 32)};
}

// How B lies: K, each column's 16 elements side by side (the rows of a K tile of attention); MN, each row's N elements
// (the rows of a V tile). A: K, each row's 16 elements side by side (the rows of a Q tile); MN, each column's 64 (A is
// the transposed of what lies there, dS where dSᵀ does).
enum class Major { K, MN };

FLASH_INLINE void wgmma_of(float* d, const unsigned* a, MatrixDescriptor a_matrix, MatrixDescriptor b, unsigned columns,
                           bool accumulate, Major a_major, Major b_major, bool bfloat16, flash::simt::Site site) {
  const auto bits = [](MatrixDescriptor m) { return static_cast<std::uint64_t>(m.high) << 32 | m.low; };
  const flash::simt::WgmmaOperands operands{
      d, a, bits(a_matrix), bits(b), columns, accumulate, a_major == Major::MN, b_major == Major::MN, bfloat16};
  flash::simt::warp_op(flash::simt::WarpOp::wgmma, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&operands), site);
}

// N has a form here: 32, 64, 80, 96, 128, 192, 256.
template <int n>
inline constexpr bool is_wgmma_size = n == 32 || n == 64 || n == 80 || n == 96 || n == 128 || n == 192 || n == 256;

// D = A B, or D += A B with `accumulate`, by the warpgroup, beside what its threads do: D [64,N] in fp32, N = 32, 64,
// 80, 96, 128, 192 or 256, A [64,16] and B [16,N] of T (half or bfloat16). Lane l of warp w has of D in d[4 j + i] row
// 16 w + l / 4 + 8 (i / 2), column 8 j + 2 (l % 4) + i % 2. A is in shared memory, or in registers: those of rows
// 16 w … as mma_m16n8k16 takes them. Until wgmma_wait nobody may touch d or a, nor write A and B's tiles.
template <class T, Major kB = Major::K, Major kA = Major::K, int kRegisters>
FLASH_INLINE void wgmma_m64nNk16(float (&d)[kRegisters], MatrixDescriptor a, MatrixDescriptor b, bool accumulate,
                                 FLASH_SITE) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, "wgmma multiplies 16-bit floats");
  static_assert(is_wgmma_size<2 * kRegisters>, "wgmma: N is 32, 64, 80, 96, 128, 192 or 256 here");
  wgmma_of(d, nullptr, a, b, 2 * kRegisters, accumulate, kA, kB, std::is_same_v<T, __nv_bfloat16>, site);
}
template <class T, Major kB = Major::K, int kRegisters>
FLASH_INLINE void wgmma_m64nNk16(float (&d)[kRegisters], const unsigned (&a)[4], MatrixDescriptor b, bool accumulate,
                                 FLASH_SITE) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, "wgmma multiplies 16-bit floats");
  static_assert(is_wgmma_size<2 * kRegisters>, "wgmma: N is 32, 64, 80, 96, 128, 192 or 256 here");
  wgmma_of(d, a, {}, b, 2 * kRegisters, accumulate, Major::K, kB, std::is_same_v<T, __nv_bfloat16>, site);
}

// Puts what the warpgroup's threads did with their registers before the products that follow. Needed before the first
// one, and wherever d or a was read or written since; not between products into the same d of the same shape.
FLASH_INLINE void wgmma_fence(FLASH_SITE) {
  flash::simt::warp_op(flash::simt::WarpOp::wgmma_fence, 0xffffffffu, 0, site);
}
// The products that the warpgroup began since its last group become a group (perhaps an empty one).
FLASH_INLINE void wgmma_commit(FLASH_SITE) {
  flash::simt::warp_op(flash::simt::WarpOp::wgmma_commit, 0xffffffffu, 0, site);
}
// Waits until all but the last kPending groups of the warpgroup are done. Name the arrays that are used from here on
// (d, and a where it is written again): on a GPU the compiler keeps what uses them behind the wait.
template <class R, int kCount>
FLASH_INLINE flash::simt::WgmmaWait::Registers registers_of(R (&registers)[kCount]) {
  return {registers, sizeof registers};
}
template <int kPending, class... Registers>
FLASH_INLINE void wgmma_wait_at(flash::simt::Site site, Registers&... done) {
  const flash::simt::WgmmaWait::Registers arrays[sizeof...(done) + 1] = {registers_of(done)..., {nullptr, 0}};
  const flash::simt::WgmmaWait wait{kPending, arrays, sizeof...(done)};
  flash::simt::warp_op(flash::simt::WarpOp::wgmma_wait, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&wait), site);
}
template <int kPending>
FLASH_INLINE void wgmma_wait(FLASH_SITE) {
  wgmma_wait_at<kPending>(site);
}
template <int kPending, class A>
FLASH_INLINE void wgmma_wait(A& a, FLASH_SITE) {
  wgmma_wait_at<kPending>(site, a);
}
template <int kPending, class A, class B>
FLASH_INLINE void wgmma_wait(A& a, B& b, FLASH_SITE) {
  wgmma_wait_at<kPending>(site, a, b);
}
template <int kPending, class A, class B, class C>
FLASH_INLINE void wgmma_wait(A& a, B& b, C& c, FLASH_SITE) {
  wgmma_wait_at<kPending>(site, a, b, c);
}
template <int kPending, class A, class B, class C, class D>
FLASH_INLINE void wgmma_wait(A& a, B& b, C& c, D& d, FLASH_SITE) {
  wgmma_wait_at<kPending>(site, a, b, c, d);
}

// Four matrices of 8 x 8 16-bit elements to shared memory, ldmatrix's way back: lane 8 i + r gives the address of row r
// of matrix i (16 bytes, a multiple of 16), each lane the elements 2 (lane % 4) and the next one of row lane / 4.
FLASH_INLINE void stmatrix_x4(void* row, const unsigned (&registers)[4], FLASH_SITE) {
  flash::simt::StmatrixRegisters exchanged{registers, {}};
  flash::simt::warp_op(flash::simt::WarpOp::stmatrix, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&exchanged), site);
  flash::simt::stmatrix_row(row, exchanged, site);
}

// The warpgroup's threads take more registers from what the block has left, waiting until there are so many; or give
// some back. With __launch_bounds__(threads, blocks) a thread begins with 65536 / (threads · blocks), rounded down to a
// multiple of 8, at most 248.
template <int kRegisters>
FLASH_INLINE void setmaxnreg_inc(FLASH_SITE) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0, "setmaxnreg: a multiple of 8, 24 to 256");
  const flash::simt::RegisterCount wanted{kRegisters, true};
  flash::simt::warp_op(flash::simt::WarpOp::setmaxnreg, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&wanted), site);
}
template <int kRegisters>
FLASH_INLINE void setmaxnreg_dec(FLASH_SITE) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0, "setmaxnreg: a multiple of 8, 24 to 256");
  const flash::simt::RegisterCount wanted{kRegisters, false};
  flash::simt::warp_op(flash::simt::WarpOp::setmaxnreg, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&wanted), site);
}

}  // namespace flash::inline FLASH_MACHINE
