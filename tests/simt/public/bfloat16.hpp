// bfloat16.hpp: verify.hpp's inputs and results as bfloat16, for the programs beside it whose kernels take that.
// Use: #include "bfloat16.hpp"; rounded(filled(n, seed)) are numbers that bfloat16 has; uploaded_bf16, downloaded_bf16.
#pragma once
#include <cuda_bf16.h>

#include "verify.hpp"

inline Floats rounded(Floats values) {
  for (float& value : values) value = __bfloat162float(__float2bfloat16(value));
  return values;
}
inline __nv_bfloat16* uploaded_bf16(const Floats& values) {
  std::vector<__nv_bfloat16> narrow;
  for (const float value : values) narrow.push_back(__float2bfloat16(value));
  __nv_bfloat16* x;
  cudaMalloc(&x, narrow.size() * sizeof(__nv_bfloat16));
  cudaMemcpy(x, narrow.data(), narrow.size() * sizeof(__nv_bfloat16), cudaMemcpyHostToDevice);
  return x;
}
inline Floats downloaded_bf16(const __nv_bfloat16* x, std::size_t count) {
  std::vector<__nv_bfloat16> narrow(count);
  cudaMemcpy(narrow.data(), x, count * sizeof(__nv_bfloat16), cudaMemcpyDeviceToHost);
  Floats values;
  for (const __nv_bfloat16 value : narrow) values.push_back(__bfloat162float(value));
  return values;
}
