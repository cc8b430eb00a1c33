// training.cuh: what a forward pass keeps for a backward pass (phase 09, docs/backward.md), by pairs of elements as
// they stand side by side in accumulators: what rounding takes from O, the sum of what is left of P, and O in fp32.
// Use: attention<T, D, Br, Bc, T, true>, launched by Training.
#pragma once
#include "phases/interface/device.cuh"

namespace flash::phase13::inline FLASH_MACHINE {

// #region training
// What is written of each row beside O. Each may be null; m is in base 2: P = exp2(scale_log2 · S - m) / l.
struct RowArrays {
  float *LSE, *m, *l;  // [B, H, Sq]

  __device__ RowArrays from(std::int64_t row) const {
    return {LSE ? LSE + row : nullptr, m ? m + row : nullptr, l ? l + row : nullptr};
  }
};

// Two rounded numbers, as pack() left them, in fp32.
template <class T>
__device__ float2 unpack(unsigned pair) {
  const auto half = [](unsigned bits) {
    const auto number = static_cast<std::uint16_t>(bits);
    return widen(*reinterpret_cast<const T*>(&number));
  };
  return make_float2(half(pair & 0xffff), half(pair >> 16));
}

// Their sum. l must count P as P V does, rounded, or the row's δ would be off.
template <class T>
__device__ float sum_of(unsigned pair) {
  const float2 both = unpack<T>(pair);
  return both.x + both.y;
}

// What rounding to T takes from two numbers, 16 bits each: the distance between the two bit patterns, as in phase 09.
template <class T>
__device__ unsigned low_bits(float left, float right) {
  const float2 rounded = unpack<T>(pack<T>(left, right));
  const auto distance = [](float exact, float near) {  // NaN: may be wide
    const std::int64_t wide = std::int64_t{__float_as_int(exact)} - __float_as_int(near);
    return static_cast<unsigned>(min(max(wide, std::int64_t{-32768}), std::int64_t{32767})) & 0xffff;
  };
  return distance(left, rounded.x) | distance(right, rounded.y) << 16;
}

// Two neighbours in fp32, of which `inside` are inside of the row: 8 bytes at once where they may be.
__device__ inline void store_pair(float* to, float left, float right, int inside) {
  if (inside >= 2 && reinterpret_cast<std::uintptr_t>(to) % sizeof(float2) == 0) {
    *reinterpret_cast<float2*>(to) = make_float2(left, right);
  } else {
    if (inside >= 1) to[0] = left;
    if (inside >= 2) to[1] = right;
  }
}
// #endregion

}  // namespace flash::phase13::inline FLASH_MACHINE
