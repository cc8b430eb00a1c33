// copies.hpp: asynchronous copies of any size, which threads share, in pieces of cp.async: what memcpy_async of
// cooperative groups, of cuda::barrier and of cuda::pipeline have in common.
// Use: flash::cuda::copy_async(rank, threads, to, from, bytes, site); then commit or wait.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

// A number of bytes that is a multiple of kAlignment, as both addresses are.
namespace cuda {
template <::std::size_t kAlignment>
struct aligned_size_t {
  ::std::size_t value;
  __host__ __device__ constexpr explicit aligned_size_t(::std::size_t bytes) : value(bytes) {}
  __host__ __device__ constexpr operator ::std::size_t() const { return value; }
};
}  // namespace cuda

namespace flash::cuda {

// This thread's share, as one of so many, in the widest pieces that both addresses and the size allow.
FLASH_INLINE void copy_async(std::size_t rank, std::size_t threads, void* shared, const void* global, std::size_t bytes,
                             flash::simt::Site site) {
  char* const to = static_cast<char*>(shared);
  const char* const from = static_cast<const char*>(global);
  std::size_t piece = 16;
  while ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) % piece != 0)
    piece /= 2;
  const bool narrow = piece < 4 || !flash::simt::is_shared(to);  // no cp.async for these
  for (std::size_t i = rank * piece; i < bytes; i += threads * piece)
    if (narrow)
      memcpy(to + i, from + i, piece);
    else
      flash::simt::cp_async(to + i, from + i, static_cast<unsigned>(piece), static_cast<unsigned>(piece), site);
}

}  // namespace flash::cuda
