// inline_ptx.hpp: what inline assembly of programs that ./flash check compiles becomes: a function for each instruction
// of PTX, with its operands in PTX's order: first what it writes. Which there are: sim/compiler/inline_ptx.cpp, which
// makes the calls. Meaning: PTX ISA; of those that gpu/ptx.cuh has, too: sim/dialect/ptx.hpp and hopper.hpp.
// Registers are the program's variables, of any type of the size: an instruction reads and writes their bits.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "sim/core/tensor_map.hpp"
#include "sim/dialect/dialect.hpp"
#include "sim/dialect/ptx.hpp"
#include "sim/error.hpp"

namespace flash::cuda {
// Where the address 0 of the block's shared memory lies, as 32-bit addresses of it count.
std::byte* shared_window();
}  // namespace flash::cuda

// The 32-bit address that instructions on shared memory take, as __cvta_generic_to_shared and cvta give it.
FLASH_INLINE std::size_t __cvta_generic_to_shared(const void* pointer) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(pointer) - flash::cuda::shared_window());
}
FLASH_INLINE void* __cvta_shared_to_generic(std::size_t address) {
  return flash::cuda::shared_window() + address;
}
FLASH_INLINE std::size_t __cvta_generic_to_global(const void* pointer) {
  return reinterpret_cast<std::size_t>(pointer);
}
FLASH_INLINE void* __cvta_global_to_generic(std::size_t address) {
  return reinterpret_cast<void*>(address);
}

namespace flash::ptx {

using ::blockDim, ::blockIdx, ::gridDim, ::threadIdx;
using ::clock64, ::__threadfence, ::__threadfence_block, ::__threadfence_system;

// ---- operands -----------------------------------------------------------------------------------------------------

// The destination _, which takes anything.
struct Sink {
  template <class T>
  const Sink& operator=(const T&) const {
    return *this;
  }
};
inline constexpr Sink sink;

// An operand as the instruction's type: the same bits, or, of a number of another size, its value.
template <class T, class From>
FLASH_INLINE T as(const From& from) {
  if constexpr (std::is_pointer_v<From>)
    return static_cast<T>(reinterpret_cast<std::uintptr_t>(from));
  else if constexpr (sizeof(T) == sizeof(From))
    return __builtin_bit_cast(T, from);
  else
    return static_cast<T>(from);
}
template <class To, class T>
FLASH_INLINE void set(To& to, T value) {
  if constexpr (std::is_same_v<To, const Sink>)
    (void)value;
  else
    to = as<To>(value);
}
// A 64-bit address is a pointer; a 32-bit one is of shared memory.
template <class T>
FLASH_INLINE T* pointer(const auto& address) {
  if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(address)>>)
    return (T*)address;
  else if constexpr (sizeof address == 8)
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
  else
    return reinterpret_cast<T*>(flash::cuda::shared_window() + static_cast<std::uint32_t>(address));
}
// [address + offset]
FLASH_INLINE auto at(const auto& address, long offset) {
  if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(address)>>)
    return (const char*)address + offset;
  else
    return static_cast<std::remove_cvref_t<decltype(address)>>(address + offset);
}
FLASH_INLINE float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

FLASH_INLINE unsigned rank_in_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
FLASH_INLINE unsigned lane() {
  return rank_in_block() % 32;
}
FLASH_INLINE unsigned warp() {
  return rank_in_block() / 32;
}
FLASH_INLINE unsigned lanemask_eq() {
  return 1u << lane();
}
FLASH_INLINE unsigned lanemask_lt() {
  return lanemask_eq() - 1;
}
FLASH_INLINE unsigned lanemask_le() {
  return lanemask_lt() | lanemask_eq();
}
FLASH_INLINE unsigned lanemask_gt() {
  return ~lanemask_le();
}
FLASH_INLINE unsigned lanemask_ge() {
  return ~lanemask_lt();
}

// ---- numbers: integers wrap, floating-point numbers are rounded once ------------------------------------------------

// So that integers wrap.
template <class T>
struct Itself {
  using type = T;
};
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, std::make_unsigned<T>,
                                             Itself<T>>::type;

#define FLASH_UNARY(name, result)           \
  template <class T>                        \
  FLASH_INLINE void name(auto& d, auto x) { \
    const auto a = as<T>(x);                \
    set(d, static_cast<T>(result));         \
  }
#define FLASH_BINARY(name, result)                                                                    \
  template <class T>                                                                                  \
  FLASH_INLINE void name(auto& d, auto x, auto y) {                                                   \
    const Wrapping<T> a = static_cast<Wrapping<T>>(as<T>(x)), b = static_cast<Wrapping<T>>(as<T>(y)); \
    set(d, static_cast<T>(result));                                                                   \
  }
#define FLASH_COMPARISON(name, operation)           \
  template <class T>                                \
  FLASH_INLINE void name(bool& p, auto x, auto y) { \
    p = as<T>(x) operation as<T>(y);                \
  }
FLASH_UNARY(mov, a)
FLASH_UNARY(neg, -static_cast<Wrapping<T>>(a))
FLASH_UNARY(bit_not, (std::is_same_v<T, bool> ? a == T{} : ~a))
FLASH_BINARY(add, a + b)
FLASH_BINARY(sub, a - b)
FLASH_BINARY(mul, a* b)
FLASH_BINARY(bit_and, a& b)
FLASH_BINARY(bit_or, a | b)
FLASH_BINARY(bit_xor, a ^ b)
FLASH_COMPARISON(setp_eq, ==)
FLASH_COMPARISON(setp_lt, <)
FLASH_COMPARISON(setp_le, <=)
FLASH_COMPARISON(setp_gt, >)
FLASH_COMPARISON(setp_ge, >=)
#undef FLASH_UNARY
#undef FLASH_BINARY
#undef FLASH_COMPARISON
// False where one is NaN, as all comparisons but setp.neu and its kind.
template <class T>
FLASH_INLINE void setp_ne(bool& p, auto x, auto y) {
  p = as<T>(x) < as<T>(y) || as<T>(y) < as<T>(x);
}
// Of a number and NaN the number.
template <class T>
FLASH_INLINE void min(auto& d, auto x, auto y) {
  if constexpr (std::is_same_v<T, float>)
    set(d, flash::smaller(as<T>(x), as<T>(y)));
  else if constexpr (std::is_same_v<T, double>)
    set(d, __builtin_fmin(as<T>(x), as<T>(y)));
  else
    set(d, as<T>(y) < as<T>(x) ? as<T>(y) : as<T>(x));
}
template <class T>
FLASH_INLINE void max(auto& d, auto x, auto y) {
  if constexpr (std::is_same_v<T, float>)
    set(d, flash::larger(as<T>(x), as<T>(y)));
  else if constexpr (std::is_same_v<T, double>)
    set(d, __builtin_fmax(as<T>(x), as<T>(y)));
  else
    set(d, as<T>(x) < as<T>(y) ? as<T>(y) : as<T>(x));
}
template <class T>
FLASH_INLINE void selp(auto& d, auto x, auto y, bool p) {
  set(d, p ? as<T>(x) : as<T>(y));
}
// fma.rn of floats, mad.lo of integers.
template <class T>
FLASH_INLINE void mad(auto& d, auto x, auto y, auto z) {
  if constexpr (std::is_same_v<T, float>)
    set(d, ::fmaf(as<T>(x), as<T>(y), as<T>(z)));
  else if constexpr (std::is_same_v<T, double>)
    set(d, ::fma(as<T>(x), as<T>(y), as<T>(z)));
  else
    set(d, static_cast<T>(static_cast<Wrapping<T>>(as<T>(x)) * static_cast<Wrapping<T>>(as<T>(y)) +
                          static_cast<Wrapping<T>>(as<T>(z))));
}
// Distances beyond the width leave nothing but the sign.
template <class T>
FLASH_INLINE void shl(auto& d, auto x, auto distance) {
  const unsigned by = as<unsigned>(distance);
  set(d, by < 8 * sizeof(T) ? static_cast<T>(static_cast<Wrapping<T>>(as<T>(x)) << by) : T{});
}
template <class T>
FLASH_INLINE void shr(auto& d, auto x, auto distance) {
  const unsigned by = as<unsigned>(distance), most = 8 * sizeof(T) - 1;
  set(d, by > most && std::is_unsigned_v<T> ? T{} : static_cast<T>(as<T>(x) >> (by < most ? by : most)));
}
// mov.b64 d, {low, high} and mov.b64 {low, high}, d; of 32 bits the same.
template <class T>
FLASH_INLINE void pack(auto& d, auto low, auto high) {
  using Half = std::conditional_t<sizeof(T) == 8, std::uint32_t, std::uint16_t>;
  set(d, static_cast<T>(T{as<Half>(high)} << 4 * sizeof(T) | as<Half>(low)));
}
template <class T>
FLASH_INLINE void unpack(auto& low, auto& high, auto from) {
  using Half = std::conditional_t<sizeof(T) == 8, std::uint32_t, std::uint16_t>;
  set(low, static_cast<Half>(as<T>(from)));
  set(high, static_cast<Half>(as<T>(from) >> 4 * sizeof(T)));
}

FLASH_INLINE void popc(auto& d, auto x) {
  set(d, ::__popc(as<unsigned>(x)));
}
FLASH_INLINE void clz(auto& d, auto x) {
  set(d, ::__clz(as<int>(x)));
}
FLASH_INLINE void brev(auto& d, auto x) {
  set(d, ::__brev(as<unsigned>(x)));
}
// The highest bit that is set; ~0: there is none.
FLASH_INLINE void bfind(auto& d, auto x) {
  set(d, 31u - static_cast<unsigned>(::__clz(as<int>(x))));
}
FLASH_INLINE void prmt(auto& d, auto x, auto y, auto selector) {
  set(d, flash::prmt(as<unsigned>(x), as<unsigned>(y), as<unsigned>(selector)));
}
// The approximations of a GPU are correctly rounded here. kFlush: .ftz, subnormal operands and results are zeros.
template <bool kFlush>
FLASH_INLINE float flushed(float x) {
  return kFlush && __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x;
}
#define FLASH_APPROXIMATION(name, result)                \
  template <bool kFlush>                                 \
  FLASH_INLINE void name(auto& d, auto operand) {        \
    const float x = flushed<kFlush>(as<float>(operand)); \
    set(d, flushed<kFlush>(result));                     \
  }
FLASH_APPROXIMATION(ex2, ::exp2f(x))
FLASH_APPROXIMATION(lg2, __builtin_log2f(x))
FLASH_APPROXIMATION(rcp, 1.0f / x)
FLASH_APPROXIMATION(sqrt, __builtin_sqrtf(x))
FLASH_APPROXIMATION(rsqrt, 1.0f / __builtin_sqrtf(x))
#undef FLASH_APPROXIMATION
// Two floats become two halfs of a register, the first one the upper.
FLASH_INLINE void cvt_f16x2(auto& d, auto upper, auto lower) {
  set(d, std::bit_cast<unsigned>(flash::__floats2half2_rn(as<float>(lower), as<float>(upper))));
}
FLASH_INLINE void cvt_bf16x2(auto& d, auto upper, auto lower) {
  set(d, std::bit_cast<unsigned>(flash::__floats2bfloat162_rn(as<float>(lower), as<float>(upper))));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// Vectors of 2 or 4, moved as one.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Vector {
  T x[kCount];
};
template <class T>
FLASH_INLINE void ld(auto& d, auto address) {
  set(d, *pointer<const T>(address));
}
template <class T>
FLASH_INLINE void ld(auto& d, auto& e, auto address) {
  const auto v = *pointer<const Vector<T, 2>>(address);
  set(d, v.x[0]), set(e, v.x[1]);
}
template <class T>
FLASH_INLINE void ld(auto& d, auto& e, auto& f, auto& g, auto address) {
  const auto v = *pointer<const Vector<T, 4>>(address);
  set(d, v.x[0]), set(e, v.x[1]), set(f, v.x[2]), set(g, v.x[3]);
}
template <class T>
FLASH_INLINE void st(auto address, auto d) {
  *pointer<T>(address) = as<T>(d);
}
template <class T>
FLASH_INLINE void st(auto address, auto d, auto e) {
  *pointer<Vector<T, 2>>(address) = Vector<T, 2>{as<T>(d), as<T>(e)};
}
template <class T>
FLASH_INLINE void st(auto address, auto d, auto e, auto f, auto g) {
  *pointer<Vector<T, 4>>(address) = Vector<T, 4>{as<T>(d), as<T>(e), as<T>(f), as<T>(g)};
}
template <class T>
FLASH_INLINE void red_add(auto address, auto x, FLASH_SITE) {
  ::atomicAdd(pointer<T>(address), as<T>(x), site);
}

FLASH_INLINE void cp_async(auto shared, auto global, auto bytes, FLASH_SITE) {
  const auto count = as<unsigned>(bytes);
  flash::simt::cp_async(pointer<void>(shared), pointer<const void>(global), count, count, site);
}
// Of the source only so many bytes are read; zeros fill the rest.
FLASH_INLINE void cp_async(auto shared, auto global, auto bytes, auto source_bytes, FLASH_SITE) {
  flash::simt::cp_async(pointer<void>(shared), pointer<const void>(global), as<unsigned>(bytes),
                        as<unsigned>(source_bytes), site);
}
FLASH_INLINE void cp_async_commit() {
  flash::simt::cp_async_commit();
}
FLASH_INLINE void cp_async_wait(auto pending, FLASH_SITE) {
  flash::simt::cp_async_wait(as<unsigned>(pending), site);
}
FLASH_INLINE void cp_async_wait_all(FLASH_SITE) {
  flash::simt::cp_async_commit();
  flash::simt::cp_async_wait(0, site);
}

// ---- warps and barriers ---------------------------------------------------------------------------------------------

// Of one or two matrices only the first 8 or 16 lanes give rows.
template <bool kTransposed>
FLASH_INLINE void matrices(unsigned (&registers)[4], unsigned count, auto row, flash::simt::Site site) {
  flash::simt::LdmatrixRegisters exchanged{};
  if (lane() < 8 * count) flash::simt::ldmatrix_row(pointer<const void>(row), exchanged, site);
  flash::simt::warp_op(flash::simt::WarpOp::ldmatrix, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&exchanged), site,
                       kTransposed);
  __builtin_memcpy(registers, exchanged.elements, sizeof exchanged.elements);
}
template <bool kTransposed>
FLASH_INLINE void ldmatrix(auto& d, auto row, FLASH_SITE) {
  unsigned registers[4];
  matrices<kTransposed>(registers, 1, row, site);
  set(d, registers[0]);
}
template <bool kTransposed>
FLASH_INLINE void ldmatrix(auto& d, auto& e, auto row, FLASH_SITE) {
  unsigned registers[4];
  matrices<kTransposed>(registers, 2, row, site);
  set(d, registers[0]), set(e, registers[1]);
}
template <bool kTransposed>
FLASH_INLINE void ldmatrix(auto& d, auto& e, auto& f, auto& g, auto row, FLASH_SITE) {
  unsigned registers[4];
  matrices<kTransposed>(registers, 4, row, site);
  set(d, registers[0]), set(e, registers[1]), set(f, registers[2]), set(g, registers[3]);
}

template <class T>
FLASH_INLINE void mma(auto& d0, auto& d1, auto& d2, auto& d3, auto a0, auto a1, auto a2, auto a3, auto b0, auto b1,
                      auto c0, auto c1, auto c2, auto c3, FLASH_SITE) {
  const unsigned a[] = {as<unsigned>(a0), as<unsigned>(a1), as<unsigned>(a2), as<unsigned>(a3)};
  const unsigned b[] = {as<unsigned>(b0), as<unsigned>(b1)};
  const float c[] = {as<float>(c0), as<float>(c1), as<float>(c2), as<float>(c3)};
  float d[4];
  flash::mma_m16n8k16<T>(d, a, b, c, site);
  set(d0, d[0]), set(d1, d[1]), set(d2, d[2]), set(d3, d[3]);
}
// Sums of half: rounded after the product.
FLASH_INLINE void mma_f16(auto& d0, auto& d1, auto a0, auto a1, auto a2, auto a3, auto b0, auto b1, auto c0, auto c1,
                          FLASH_SITE) {
  const auto c = std::bit_cast<flash::__half2>(as<unsigned>(c0)), e = std::bit_cast<flash::__half2>(as<unsigned>(c1));
  float d[4];
  mma<flash::__half>(d[0], d[1], d[2], d[3], a0, a1, a2, a3, b0, b1, flash::__low2float(c), flash::__high2float(c),
                     flash::__low2float(e), flash::__high2float(e), site);
  cvt_f16x2(d0, d[1], d[0]);
  cvt_f16x2(d1, d[3], d[2]);
}

// Products of bytes with sign, 32 to a sum: of the halfs that have their values, which is exact. A register's bytes 0
// and 1 go to one product, 2 and 3 to the other; which k of the 32 they are is the same in A and B.
FLASH_INLINE unsigned halfs_of_bytes(unsigned word, int first) {
  unsigned halfs;
  cvt_f16x2(halfs, static_cast<float>(static_cast<signed char>(word >> 8 * (first + 1))),
            static_cast<float>(static_cast<signed char>(word >> 8 * first)));
  return halfs;
}
FLASH_INLINE void mma_s8(auto& d0, auto& d1, auto& d2, auto& d3, auto a0, auto a1, auto a2, auto a3, auto b0, auto b1,
                         auto c0, auto c1, auto c2, auto c3, FLASH_SITE) {
  const unsigned a[2][2] = {{as<unsigned>(a0), as<unsigned>(a1)}, {as<unsigned>(a2), as<unsigned>(a3)}};
  const unsigned b[] = {as<unsigned>(b0), as<unsigned>(b1)};
  float d[4] = {};
  for (int half = 0; half < 2; ++half)
    mma<flash::__half>(d[0], d[1], d[2], d[3], halfs_of_bytes(a[half][0], 0), halfs_of_bytes(a[half][1], 0),
                       halfs_of_bytes(a[half][0], 2), halfs_of_bytes(a[half][1], 2), halfs_of_bytes(b[half], 0),
                       halfs_of_bytes(b[half], 2), d[0], d[1], d[2], d[3], site);
  add<int>(d0, c0, static_cast<int>(d[0])), add<int>(d1, c1, static_cast<int>(d[1]));
  add<int>(d2, c2, static_cast<int>(d[2])), add<int>(d3, c3, static_cast<int>(d[3]));
}

FLASH_INLINE void setmaxnreg(unsigned registers, bool increases, flash::simt::Site site) {
  const flash::simt::RegisterCount wanted{registers, increases};
  flash::simt::warp_op(flash::simt::WarpOp::setmaxnreg, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&wanted), site);
}
FLASH_INLINE void setmaxnreg_inc(auto registers, FLASH_SITE) {
  setmaxnreg(as<unsigned>(registers), true, site);
}
FLASH_INLINE void setmaxnreg_dec(auto registers, FLASH_SITE) {
  setmaxnreg(as<unsigned>(registers), false, site);
}

FLASH_INLINE void bar_sync(auto barrier, auto threads, FLASH_SITE) {
  flash::bar_sync(as<int>(barrier), as<int>(threads), site);
}
// Barrier 0 of all threads is __syncthreads().
FLASH_INLINE void bar_sync(auto barrier, FLASH_SITE) {
  if (as<int>(barrier) == 0)
    ::__syncthreads(site);
  else
    flash::bar_sync(as<int>(barrier), static_cast<int>(blockDim.x * blockDim.y * blockDim.z), site);
}
FLASH_INLINE void bar_arrive(auto barrier, auto threads, FLASH_SITE) {
  flash::bar_arrive(as<int>(barrier), as<int>(threads), site);
}
FLASH_INLINE void elect(auto& d, bool& p, auto mask, FLASH_SITE) {
  p = flash::simt::warp_op(flash::simt::WarpOp::elect, as<unsigned>(mask), 0, site) != 0;
  set(d, static_cast<unsigned>(__builtin_ctz(as<unsigned>(mask))));
}

// ---- mbarriers and what completes on them ---------------------------------------------------------------------------

FLASH_INLINE void mbarrier_init(auto barrier, auto arrivals, FLASH_SITE) {
  flash::simt::mbarrier_init(pointer<std::uint64_t>(barrier), as<unsigned>(arrivals), site);
}
FLASH_INLINE void mbarrier_inval(auto barrier, FLASH_SITE) {
  flash::simt::mbarrier_inval(pointer<std::uint64_t>(barrier), site);
}
// The state that an arrival gives is here the parity of its phase; only parities are waited for.
FLASH_INLINE void mbarrier_arrive(auto& state, auto barrier, FLASH_SITE) {
  set(state, std::uint64_t{flash::simt::mbarrier_parity(pointer<std::uint64_t>(barrier))});
  flash::simt::mbarrier_arrive(pointer<std::uint64_t>(barrier), false, 0, site);
}
FLASH_INLINE void mbarrier_arrive(auto& state, auto barrier, auto arrivals, FLASH_SITE) {
  mbarrier_arrive(state, barrier, site);
  for (unsigned i = 1; i < as<unsigned>(arrivals); ++i)
    flash::simt::mbarrier_arrive(pointer<std::uint64_t>(barrier), false, 0, site);
}
FLASH_INLINE void mbarrier_arrive_expect_tx(auto& state, auto barrier, auto bytes, FLASH_SITE) {
  set(state, std::uint64_t{flash::simt::mbarrier_parity(pointer<std::uint64_t>(barrier))});
  flash::simt::mbarrier_arrive(pointer<std::uint64_t>(barrier), true, as<unsigned>(bytes), site);
}
FLASH_INLINE void mbarrier_try_wait(bool& p, auto barrier, auto parity, FLASH_SITE) {
  p = flash::simt::mbarrier_test_wait(pointer<std::uint64_t>(barrier), as<unsigned>(parity), "mbarrier.try_wait", site);
}
FLASH_INLINE void mbarrier_try_wait(bool& p, auto barrier, auto parity, auto, FLASH_SITE) {  // a time limit
  mbarrier_try_wait(p, barrier, parity, site);
}
FLASH_INLINE void fence_mbarrier_init() {
  flash::simt::fence_mbarrier_init();
}
FLASH_INLINE void fence_proxy_async() {
  flash::simt::fence_proxy_async();
}
FLASH_INLINE void cp_async_bulk(auto shared, auto global, auto bytes, auto barrier, FLASH_SITE) {
  flash::simt::bulk_load(pointer<void>(shared), pointer<const void>(global), as<unsigned>(bytes),
                         pointer<std::uint64_t>(barrier), site);
}

// A box at x, y and perhaps z; a map of bytes is one of 16-bit elements (sim/cuda/tensor_maps.cpp).
template <int kRank>
FLASH_INLINE void tensor_load(auto shared, auto map, int x, int y, int z, auto barrier, flash::simt::Site site) {
  const auto* const of = pointer<const flash::simt::TensorMap>(map);
  if (of->reserved[0] && x % 2 != 0)
    flash::refuse("x of cp.async.bulk.tensor in a map of bytes", x, "an even one", "begin boxes at even bytes");
  const int coordinates[] = {of->reserved[0] ? x / 2 : x, y, z};
  flash::simt::tensor_load(pointer<void>(shared), of, pointer<std::uint64_t>(barrier), coordinates, kRank, site);
}
template <int kRank>
FLASH_INLINE void cp_async_bulk_tensor(auto shared, auto map, auto x, auto y, auto barrier, FLASH_SITE) {
  tensor_load<kRank>(shared, map, as<int>(x), as<int>(y), 0, barrier, site);
}
template <int kRank>
FLASH_INLINE void cp_async_bulk_tensor(auto shared, auto map, auto x, auto y, auto z, auto barrier, FLASH_SITE) {
  tensor_load<kRank>(shared, map, as<int>(x), as<int>(y), as<int>(z), barrier, site);
}

}  // namespace flash::ptx
