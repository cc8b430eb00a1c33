// Phase 30: rows from one place to another on a GPU, in another type or added to a sum. A thread moves four numbers
// where all rows begin at multiples of four, else one.
// Use: move_rows<From, To, kAdd, kWidth><<<grid_of(…), 256>>>(from, to, heads, H);  phases/ring/gpu.cu
#pragma once
#include <type_traits>

#include "phases/interface/device.cuh"

namespace flash::phase30::inline FLASH_MACHINE {

template <class To, class From>
__device__ __forceinline__ To converted(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;  // bits, whatever they mean
  else
    return round_to<To>(widen(x));
}

// Four numbers as one word of 8 or 16 bytes.
template <class T>
using Four = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
template <class T>
__device__ __forceinline__ T& number(Four<T>& four, int i) {
  return reinterpret_cast<T*>(&four)[i];
}

// kAdd: `to`, which is fp32, gets the sum.
template <class From, class To, bool kAdd, int kWidth>
__global__ void __launch_bounds__(256)
    move_rows(Heads<const From> from /*[B, H, rows, cols]*/, Heads<To> to /*the same*/, std::int64_t heads, int H) {
  const std::int64_t head = blockIdx.y + std::int64_t{65535} * blockIdx.z;
  const std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x;
  const int in_row = to.cols / kWidth;
  const std::int64_t row = i / in_row;
  const int d = static_cast<int>(i - row * in_row) * kWidth;
  if (head >= heads || row >= to.rows) return;
  const From* x = from.head(head / H, head % H).data + row * from.stride + d;
  To* y = to.head(head / H, head % H).data + row * to.stride + d;
  if constexpr (kWidth == 4) {
    Four<From> in = *reinterpret_cast<const Four<From>*>(x);
    Four<To> out = {};
    if constexpr (kAdd) out = *reinterpret_cast<const Four<To>*>(y);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const To in_type = converted<To>(number<From>(in, n));
      if constexpr (kAdd)
        number<To>(out, n) += in_type;
      else
        number<To>(out, n) = in_type;
    }
    *reinterpret_cast<Four<To>*>(y) = out;
  } else if constexpr (kAdd) {
    *y += converted<To>(*x);
  } else {
    *y = converted<To>(*x);
  }
}

}  // namespace flash::phase30::inline FLASH_MACHINE
