// device.cuh: what the kernels of all phases use and no reader needs to see twice: tensors in device memory, types.
// Strides are 64-bit products: B·H·S·D may exceed 2^31, and so may an offset in a view with wide strides.
// Use: through phases/interface/kernel_phase.cuh, in a phase's attention.cuh.
#pragma once
#include <cstdint>
#include <type_traits>

#include "gpu/kernel.cuh"

namespace flash::inline FLASH_MACHINE {

// One head of a tensor in device memory.
template <class T>
struct Head {
  T* data;              // [rows, cols]
  std::int64_t stride;  // elements from one row to the next
  std::int64_t rows;
  int cols;  // the true head dimension; a kernel's D is the next instantiated one
};

// All heads of a tensor.
template <class T>
struct Heads {
  T* data;                                  // [B, H, rows, cols]
  std::int64_t b_stride, h_stride, stride;  // elements from one batch entry, head, row to the next
  std::int64_t rows;
  int cols;

  __host__ __device__ Head<T> head(std::int64_t b, std::int64_t h) const {
    return {data + b * b_stride + h * h_stride, stride, rows, cols};
  }
};

// An element as fp32, and fp32 rounded to the element type T (to nearest even).
__device__ __forceinline__ float widen(float x) {
  return x;
}
__device__ __forceinline__ float widen(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <class T>
__device__ __forceinline__ T round_to(float x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

// Neighbouring 16-bit elements, as bits, in one access of 4 or 16 bytes; p is a multiple of that.
__device__ __forceinline__ unsigned load2(const std::uint16_t* p) {
  return *reinterpret_cast<const unsigned*>(p);
}
__device__ __forceinline__ uint4 load8(const std::uint16_t* p) {
  return *reinterpret_cast<const uint4*>(p);
}
__device__ __forceinline__ void store2(std::uint16_t* p, unsigned value) {
  *reinterpret_cast<unsigned*>(p) = value;
}
__device__ __forceinline__ void store8(std::uint16_t* p, uint4 value) {
  *reinterpret_cast<uint4*>(p) = value;
}
// Can the rows of 16-bit elements be read in pieces of 8, that is of 16 bytes? Base, stride and width decide.
template <class T>
__device__ __forceinline__ bool in_pieces_of_8(const Head<T>& head) {
  return (reinterpret_cast<std::uintptr_t>(head.data) / sizeof(T) | head.stride | head.cols) % 8 == 0;
}
// Two numbers rounded to T (to nearest even) in one register, the first in its lower half.
template <class T>
__device__ __forceinline__ unsigned pack(float first, float second) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(first, second);
    return *reinterpret_cast<const unsigned*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const unsigned*>(&both);
  }
}

// Four neighbours in one 16-byte access; p is a multiple of 16 bytes.
__device__ __forceinline__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}

}  // namespace flash::inline FLASH_MACHINE
