// kernel_common.cuh: what the kernel phases share and no reader needs to understand: number conversions, the choice
// of a template instantiation by run-time sizes, and copies of strided tensors. One copy per machine.
// Use: include it after "gpu/kernel.cuh" in a phase's attention.cuh.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/kernel.cuh"
#ifdef __CUDACC__
#include "gpu/timer.cuh"
#pragma nv_diag_suppress 554  // View<const T> to View<const T>: a conversion that is never called
#endif
#include "phases/common/problem.hpp"
#include "phases/common/where.hpp"
#include "sim/limits.hpp"

namespace flash::inline FLASH_MACHINE {

// ---- In kernels ------------------------------------------------------------------------------------------------

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

// Four neighbours in one 16-byte access; p is a multiple of 16 bytes.
__device__ __forceinline__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}

// ---- On the host -----------------------------------------------------------------------------------------------

// Rows of a Q tile, rows of a K/V tile. The instantiated ones; a phase picks the first that fits.
struct Blocks {
  int Br, Bc;
};
inline constexpr Blocks kernel_blocks[] = {{64, 32}, {32, 64}, {16, 16}};

// Calls f.template operator()<D, Br, Bc>() with D padded to the next instantiated head dimension.
template <class F>
auto with_sizes(std::int64_t D, Blocks blocks, const F& f) {
  const auto with_blocks = [&]<int PaddedD>() {
    if (blocks.Br == 64) return f.template operator()<PaddedD, 64, 32>();
    if (blocks.Br == 32) return f.template operator()<PaddedD, 32, 64>();
    return f.template operator()<PaddedD, 16, 16>();
  };
  if (D <= 16) return with_blocks.template operator()<16>();
  if (D <= 32) return with_blocks.template operator()<32>();
  if (D <= 64) return with_blocks.template operator()<64>();
  if (D <= 128) return with_blocks.template operator()<128>();
  return with_blocks.template operator()<256>();
}

// The blocks that the caller asked for, or the first whose shared memory fits. `Tiles` is the kernel's shared struct.
template <template <int, int, int> class Tiles>
Blocks choose_blocks(const Options& options, std::int64_t D, std::int64_t available) {
  const auto bytes = [&](Blocks blocks) {
    return with_sizes(D, blocks, [&]<int PaddedD, int Br, int Bc>() {
      return static_cast<std::int64_t>(sizeof(Tiles<PaddedD, Br, Bc>));
    });
  };
  const auto text = [](std::int64_t Br, std::int64_t Bc) {
    return (Br ? std::to_string(Br) : "any") + "x" + (Bc ? std::to_string(Bc) : "any");
  };
  const Blocks* listed = nullptr;
  std::string list;
  for (const Blocks& blocks : kernel_blocks) {
    list += (list.empty() ? "" : ", ") + text(blocks.Br, blocks.Bc);
    if (options.block_q && options.block_q != blocks.Br) continue;
    if (options.block_k && options.block_k != blocks.Bc) continue;
    if (bytes(blocks) <= available) return blocks;
    if (!listed) listed = &blocks;
  }
  if (!listed)
    refuse("block size", text(options.block_q, options.block_k), "one of " + list, "omit --block-q and --block-k");
  refuse("shared memory for blocks " + text(listed->Br, listed->Bc) + " at D = " + std::to_string(D),
         std::to_string(bytes(*listed)) + " bytes", "at most " + std::to_string(available) + " on this machine",
         "choose smaller blocks of " + list);
}

// Shared memory that a block may have, in bytes.
inline std::int64_t shared_memory_of(const Machine& m) {
#ifdef __CUDACC__
  int device = 0, bytes = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "shared memory per block");
  return std::min<std::int64_t>(bytes, static_cast<std::int64_t>(shared_memory_limit(m.options().profile)));
#else
  return static_cast<std::int64_t>(shared_memory_limit(m.options().profile));
#endif
}

// scale · log2 e, rounded once: kernels use exp2(x · log2 e) for exp(x).
inline float scale_log2(float scale) {
  return static_cast<float>(static_cast<double>(scale) * 1.4426950408889634);
}

// Copies all memory that the view touches, gaps included, so that its strides hold on the device too.
template <class T>
auto upload_view(Machine& m, const char* name, const View<const T>& view) {
  return m.upload(name, view.data, static_cast<std::size_t>(view.span()));
}

// An array that a kernel only reads.
template <class T>
const auto* in(const Array<T>& array) {
  return static_cast<const T*>(array.data());
}

// A kernel argument, Tensor<U>{data, strides of b, h, s, rows, cols}.
template <template <class> class Tensor, class U, class V>
Tensor<U> tensor(U* data, const View<V>& view) {
  return {data, view.stride[0], view.stride[1], view.stride[2], view.S(), static_cast<int>(view.D())};
}

// Device memory for a view's span; nothing is copied in, so an element that no thread writes stays poison.
template <class T>
auto alloc_view(Machine& m, const char* name, const View<T>& view) {
  return m.alloc<T>(name, static_cast<std::size_t>(view.span()));
}

// Copies the view's rows back and leaves the host's gaps alone.
template <class T>
void download_view(Machine& m, const View<T>& view, const Array<device_t<T>>& array) {
  std::vector<T> span(static_cast<std::size_t>(view.span()));
  m.download(span.data(), array);
  for (std::int64_t b = 0; b < view.B() && !span.empty(); ++b)
    for (std::int64_t h = 0; h < view.H(); ++h)
      for (std::int64_t s = 0; s < view.S(); ++s)
        std::memcpy(view.row(b, h, s), &span[static_cast<std::size_t>(view.row(b, h, s) - view.data)],
                    static_cast<std::size_t>(view.D()) * sizeof(T));
}

// Runs `launches` and takes the time; collects what the machine knows about them.
template <class F>
Run timed(Machine& m, const F& launches) {
  const auto begin = std::chrono::steady_clock::now();
  launches();
  Run run;
  run.kernels = m.reports();
  run.trace = m.trace();
  run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  for (const KernelReport& kernel : run.kernels) run.ledger.add(kernel.ledger);
#ifdef __CUDACC__
  if (m.options().samples > 0) {
    m.wait_for_kernels(false);
    run.timing = time_on_gpu(launches, m.options().samples);
  }
#endif
  return run;
}

}  // namespace flash::inline FLASH_MACHINE
