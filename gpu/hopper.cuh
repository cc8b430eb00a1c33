// hopper.cuh: Hopper's PTX instructions: one function each, with the instruction's name. Copies of whole tiles (TMA),
// the barriers that count them (mbarrier), matrix products of a warpgroup (wgmma), and the words around them.
// What each does is said where its twin for the simulator stands: sim/dialect/hopper.hpp. Source: PTX ISA 9.0.
// Use: #include "gpu/hopper.cuh", in a phase whose features say .capability = {9, 0, true}: it is compiled for sm_90a.
#pragma once
#include "gpu/kernel.cuh"
#if !defined(__CUDACC__) || defined(FLASH_PROGRAM)
#include "sim/dialect/hopper.hpp"
#else
#include <cudaTypedefs.h>

#include <array>
#include <type_traits>

namespace flash::inline on_gpu {

// ---- mbarrier -----------------------------------------------------------------------------------------------------
__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// What waits for a phase: the instruction again and again until it says that the phase is complete, or once.
#define FLASH_MBARRIER_WAIT(instruction)                                                  \
  asm volatile("{\n.reg .pred done;\nagain:\n" instruction                                \
               " done, [%0], %1;\n@!done bra again;\n}\n" ::"r"(shared_address(barrier)), \
               "r"(parity)                                                                \
               : "memory")
#define FLASH_MBARRIER_ASK(instruction)                                                     \
  unsigned done;                                                                            \
  asm volatile("{\n.reg .pred p;\n" instruction " p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n" \
               : "=r"(done)                                                                 \
               : "r"(shared_address(barrier)), "r"(parity)                                  \
               : "memory");                                                                 \
  return done
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* barrier, unsigned parity) {
  FLASH_MBARRIER_WAIT("mbarrier.try_wait.parity.shared::cta.b64");
}
__device__ __forceinline__ bool mbarrier_test_wait(std::uint64_t* barrier, unsigned parity) {
  FLASH_MBARRIER_ASK("mbarrier.test_wait.parity.shared::cta.b64");
}
__device__ __forceinline__ bool mbarrier_try_wait(std::uint64_t* barrier, unsigned parity) {
  FLASH_MBARRIER_ASK("mbarrier.try_wait.parity.shared::cta.b64");
}
#undef FLASH_MBARRIER_ASK
__device__ __forceinline__ void mbarrier_inval(std::uint64_t* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// ---- copies of bytes ----------------------------------------------------------------------------------------------
__device__ __forceinline__ void cp_async_bulk(void* shared, const void* global, unsigned bytes,
                                              std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_prefetch(const void* global, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_store(void* global, const void* shared, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(global)),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_reduce_async_bulk_add(float* global, const float* shared, unsigned bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(global)),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}

// ---- copies of tiles (TMA) ----------------------------------------------------------------------------------------
using TensorMap = CUtensorMap;

// cuTensorMapEncodeTiled is the driver's; it is asked for by name, so that no program need link libcuda.
template <class T, std::size_t kRank>
TensorMap tensor_map(const T* data, const std::array<std::uint64_t, kRank>& sizes,
                     const std::array<std::uint64_t, kRank - 1>& strides, const std::array<std::uint32_t, kRank>& box) {
  static_assert(kRank >= 2 && kRank <= 5 && sizeof(T) == 2, "tensor_map: 2 to 5 dimensions of 16-bit floats");
  constexpr auto type = std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
               "cuTensorMapEncodeTiled");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  if (!encode) throw MachineError("cuTensorMapEncodeTiled: the driver has none; expected one of CUDA 12 or newer");
  std::array<std::uint32_t, kRank> every;
  every.fill(1);
  TensorMap map;
  if (encode(&map, type, kRank, const_cast<std::remove_const_t<T>*>(data), sizes.data(), strides.data(), box.data(),
             every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    throw MachineError("cuTensorMapEncodeTiled: invalid value; expected bases and strides in multiples of 16 bytes");
  return map;
}

__device__ __forceinline__ void cp_async_bulk_tensor(void* shared, const TensorMap* map, std::uint64_t* barrier, int x,
                                                     int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor(void* shared, const TensorMap* map, std::uint64_t* barrier, int x,
                                                     int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor(void* shared, const TensorMap* map, std::uint64_t* barrier, int x,
                                                     int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor(void* shared, const TensorMap* map, std::uint64_t* barrier, int x,
                                                     int y, int z, int w, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor(const TensorMap* map, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(x), "r"(y), "r"(z),
               "r"(w)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor(const TensorMap* map, int x, int y, int z, int w, int v) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(map), "r"(x), "r"(y),
               "r"(z), "r"(w), "r"(v)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_store(const TensorMap* map, const void* shared, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%1, {%2, %3}], [%0];" ::"r"(shared_address(shared)),
      "l"(map), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_store(const TensorMap* map, const void* shared, int x, int y,
                                                           int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%1, {%2, %3, %4}], [%0];" ::"r"(shared_address(shared)),
      "l"(map), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_store(const TensorMap* map, const void* shared, int x, int y,
                                                           int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5}], [%0];" ::"r"(
                   shared_address(shared)),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_store(const TensorMap* map, const void* shared, int x, int y,
                                                           int z, int w, int v) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5, %6}], [%0];" ::"r"(
                   shared_address(shared)),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// ---- products of a warpgroup (wgmma) ------------------------------------------------------------------------------
struct MatrixDescriptor {
  unsigned low, high;
  __device__ __forceinline__ MatrixDescriptor operator+(unsigned bytes) const { return {low + (bytes >> 4), high}; }
};
// 1 << 30: the 128-byte swizzle.
__device__ __forceinline__ MatrixDescriptor matrix_descriptor(const void* tile, unsigned leading_bytes = 16,
                                                              unsigned stride_bytes = 1024) {
  return {(shared_address(tile) & 0x3ffff) >> 4 | (leading_bytes >> 4) << 16, stride_bytes >> 4 | 1u << 30};
}

enum class Major { K, MN };

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// The compiler must not move what uses the registers over the wait: it does not know that wgmma writes them late.
template <class R, int kCount>
__device__ __forceinline__ void keep_in_place(R (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if constexpr (std::is_same_v<R, float>)
      asm volatile("" : "+f"(registers[i])::"memory");
    else
      asm volatile("" : "+r"(registers[i])::"memory");
}
template <class R, int kRows, int kCount>
__device__ __forceinline__ void keep_in_place(R (&registers)[kRows][kCount]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) keep_in_place(registers[i]);
}
template <int kPending, class... Registers>
__device__ __forceinline__ void wgmma_wait(Registers&... done) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  (keep_in_place(done), ...);
}

// The accumulator's registers as they stand in the assembly, and as its operands; after them come operands number N/2…
#define FLASH_D16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define FLASH_D32                                                                                                  \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31"
#define FLASH_D40 FLASH_D32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define FLASH_D48 FLASH_D40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define FLASH_D64 FLASH_D48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define FLASH_D96                                                                                \
  FLASH_D64                                                                                      \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86" \
  ",%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define FLASH_D128                                                                              \
  FLASH_D96                                                                                     \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114" \
  ",%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define FLASH_F8(i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define FLASH_F16 FLASH_F8(0), FLASH_F8(8)
#define FLASH_F32 FLASH_F16, FLASH_F8(16), FLASH_F8(24)
#define FLASH_F40 FLASH_F32, FLASH_F8(32)
#define FLASH_F48 FLASH_F40, FLASH_F8(40)
#define FLASH_F64 FLASH_F48, FLASH_F8(48), FLASH_F8(56)
#define FLASH_F96 FLASH_F64, FLASH_F8(64), FLASH_F8(72), FLASH_F8(80), FLASH_F8(88)
#define FLASH_F128 FLASH_F96, FLASH_F8(96), FLASH_F8(104), FLASH_F8(112), FLASH_F8(120)

// One instruction: type, n, the n / 2 registers, and the numbers of the operands behind them.
#define FLASH_WGMMA_SS(type, n, r, o0, o1, o2, o3, o4, o5, o6)                                                    \
  asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nmov.b64 a, {%" #o0 ", %" #o1 "};\nmov.b64 b, {%" #o2 ", %" #o3 \
               "};\nsetp.ne.b32 p, %" #o4 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type   \
               " {" FLASH_D##r "}, a, b, p, 1, 1, %" #o5 ", %" #o6 ";\n}\n"                                       \
               : FLASH_F##r                                                                                       \
               : "r"(a.low), "r"(a.high), "r"(b.low), "r"(b.high), "r"(static_cast<int>(accumulate)),             \
                 "n"(kA == Major::MN), "n"(kB == Major::MN))
#define FLASH_WGMMA_RS(type, n, r, o0, o1, o2, o3, o4, o5, o6, o7)                                      \
  asm volatile("{\n.reg .pred p;\n.reg .b64 b;\nmov.b64 b, {%" #o4 ", %" #o5 "};\nsetp.ne.b32 p, %" #o6 \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" FLASH_D##r    \
               "}, {%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, b, p, 1, 1, %" #o7 ";\n}\n"                \
               : FLASH_F##r                                                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.low), "r"(b.high),                   \
                 "r"(static_cast<int>(accumulate)), "n"(kB == Major::MN))
#define FLASH_WGMMA_SIZES(SS_OR_RS, type)                            \
  if constexpr (kRegisters == 16) FLASH_WGMMA_##SS_OR_RS##_16(type); \
  if constexpr (kRegisters == 32) FLASH_WGMMA_##SS_OR_RS##_32(type); \
  if constexpr (kRegisters == 40) FLASH_WGMMA_##SS_OR_RS##_40(type); \
  if constexpr (kRegisters == 48) FLASH_WGMMA_##SS_OR_RS##_48(type); \
  if constexpr (kRegisters == 64) FLASH_WGMMA_##SS_OR_RS##_64(type); \
  if constexpr (kRegisters == 96) FLASH_WGMMA_##SS_OR_RS##_96(type); \
  if constexpr (kRegisters == 128) FLASH_WGMMA_##SS_OR_RS##_128(type)
#define FLASH_WGMMA_SS_16(type) FLASH_WGMMA_SS(type, 32, 16, 16, 17, 18, 19, 20, 21, 22)
#define FLASH_WGMMA_SS_32(type) FLASH_WGMMA_SS(type, 64, 32, 32, 33, 34, 35, 36, 37, 38)
#define FLASH_WGMMA_SS_40(type) FLASH_WGMMA_SS(type, 80, 40, 40, 41, 42, 43, 44, 45, 46)
#define FLASH_WGMMA_SS_48(type) FLASH_WGMMA_SS(type, 96, 48, 48, 49, 50, 51, 52, 53, 54)
#define FLASH_WGMMA_SS_64(type) FLASH_WGMMA_SS(type, 128, 64, 64, 65, 66, 67, 68, 69, 70)
#define FLASH_WGMMA_SS_96(type) FLASH_WGMMA_SS(type, 192, 96, 96, 97, 98, 99, 100, 101, 102)
#define FLASH_WGMMA_SS_128(type) FLASH_WGMMA_SS(type, 256, 128, 128, 129, 130, 131, 132, 133, 134)
#define FLASH_WGMMA_RS_16(type) FLASH_WGMMA_RS(type, 32, 16, 16, 17, 18, 19, 20, 21, 22, 23)
#define FLASH_WGMMA_RS_32(type) FLASH_WGMMA_RS(type, 64, 32, 32, 33, 34, 35, 36, 37, 38, 39)
#define FLASH_WGMMA_RS_40(type) FLASH_WGMMA_RS(type, 80, 40, 40, 41, 42, 43, 44, 45, 46, 47)
#define FLASH_WGMMA_RS_48(type) FLASH_WGMMA_RS(type, 96, 48, 48, 49, 50, 51, 52, 53, 54, 55)
#define FLASH_WGMMA_RS_64(type) FLASH_WGMMA_RS(type, 128, 64, 64, 65, 66, 67, 68, 69, 70, 71)
#define FLASH_WGMMA_RS_96(type) FLASH_WGMMA_RS(type, 192, 96, 96, 97, 98, 99, 100, 101, 102, 103)
#define FLASH_WGMMA_RS_128(type) FLASH_WGMMA_RS(type, 256, 128, 128, 129, 130, 131, 132, 133, 134, 135)

// N has a form here: 32, 64, 80, 96, 128, 192, 256.
template <int n>
inline constexpr bool is_wgmma_size = n == 32 || n == 64 || n == 80 || n == 96 || n == 128 || n == 192 || n == 256;

template <class T, Major kB = Major::K, Major kA = Major::K, int kRegisters>
__device__ __forceinline__ void wgmma_m64nNk16(float (&d)[kRegisters], MatrixDescriptor a, MatrixDescriptor b,
                                               bool accumulate) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, "wgmma multiplies 16-bit floats");
  static_assert(is_wgmma_size<2 * kRegisters>, "wgmma: N is 32, 64, 80, 96, 128, 192 or 256 here");
  if constexpr (std::is_same_v<T, __half>) {
    FLASH_WGMMA_SIZES(SS, "f16");
  } else {
    FLASH_WGMMA_SIZES(SS, "bf16");
  }
}
template <class T, Major kB = Major::K, int kRegisters>
__device__ __forceinline__ void wgmma_m64nNk16(float (&d)[kRegisters], const unsigned (&a)[4], MatrixDescriptor b,
                                               bool accumulate) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, "wgmma multiplies 16-bit floats");
  static_assert(is_wgmma_size<2 * kRegisters>, "wgmma: N is 32, 64, 80, 96, 128, 192 or 256 here");
  if constexpr (std::is_same_v<T, __half>) {
    FLASH_WGMMA_SIZES(RS, "f16");
  } else {
    FLASH_WGMMA_SIZES(RS, "bf16");
  }
}

// ---- and around them ----------------------------------------------------------------------------------------------
__device__ __forceinline__ void stmatrix_x4(void* row, const unsigned (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
               : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
__device__ __forceinline__ void red_add_v4(float* global, float4 value) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(global)),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
}

__device__ __forceinline__ void red_release_add(unsigned* count, unsigned value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(count)), "r"(value)
               : "memory");
}
__device__ __forceinline__ void wait_at_least(const unsigned* count, unsigned least) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(__cvta_generic_to_global(count)) : "memory");
  } while (seen < least);
}

// ---- clusters of blocks -------------------------------------------------------------------------------------------
__device__ __forceinline__ unsigned cluster_ctarank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ unsigned cluster_nctarank() {
  unsigned blocks;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}
__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
template <class T>
__device__ __forceinline__ T* mapa(T* shared, unsigned rank) {
  T* mapped;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(shared), "r"(rank));
  return mapped;
}

// This block's address in shared memory, in the block of that rank.
__device__ __forceinline__ unsigned mapped_address(const void* shared, unsigned rank) {
  unsigned mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address(shared)), "r"(rank));
  return mapped;
}
__device__ __forceinline__ void mbarrier_arrive_cluster(std::uint64_t* barrier, unsigned rank) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapped_address(barrier, rank))
               : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_cluster_relaxed(std::uint64_t* barrier, unsigned rank) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapped_address(barrier, rank))
               : "memory");
}
__device__ __forceinline__ void mbarrier_wait_cluster(std::uint64_t* barrier, unsigned parity) {
  FLASH_MBARRIER_WAIT("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64");
}
#undef FLASH_MBARRIER_WAIT

__device__ __forceinline__ void cp_async_bulk_cluster(void* remote, const void* shared, unsigned bytes,
                                                      std::uint64_t* remote_barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(remote)),
               "r"(shared_address(shared)), "r"(bytes), "r"(shared_address(remote_barrier))
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_multicast(void* shared, const TensorMap* map,
                                                               std::uint64_t* barrier, int x, int y,
                                                               unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5}], [%2], %3;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "h"(blocks), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_multicast(void* shared, const TensorMap* map,
                                                               std::uint64_t* barrier, int x, int y, int z,
                                                               unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5, %6}], [%2], %3;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "h"(blocks), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_multicast(void* shared, const TensorMap* map,
                                                               std::uint64_t* barrier, int x, int y, int z, int w,
                                                               unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "h"(blocks), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

__device__ __forceinline__ bool elect_sync() {
  unsigned elected;
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, one;\n"
      "}\n"
      : "=r"(elected));
  return elected;
}

}  // namespace flash::inline on_gpu
#endif
