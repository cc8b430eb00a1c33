// host.cu: the host's side of the staircase: memory, grid and launch of each step. Compiled once per machine.
// A program of one file would say cudaMalloc and cudaMemcpy where this one says upload, alloc and download.
// Use: steps.hpp declares what is here.
#include "phases/05-first-kernel/steps/steps.hpp"

#include "phases/05-first-kernel/steps/1-index.cuh"
#include "phases/05-first-kernel/steps/2-tile.cuh"
#include "phases/05-first-kernel/steps/3-naive.cuh"
#include "phases/05-first-kernel/steps/4-tiled.cuh"
#include "phases/05-first-kernel/steps/5-padded.cuh"
#include "phases/05-first-kernel/steps/6-reuse.cuh"
#include "phases/05-first-kernel/steps/7-float4.cuh"
#include "phases/05-first-kernel/steps/8-exp2.cuh"
#include "phases/05-first-kernel/steps/9-unrolled.cuh"
#include "phases/interface/kernel_phase.cuh"
#ifdef __CUDACC__
#include "gpu/timer.cuh"
#endif

namespace flash::phase05::inline FLASH_MACHINE {
namespace {

// Runs `launch`, and once more for the time where it is asked for.
template <class Launch>
Ran ran(Machine& m, const Launch& launch) {
  launch();
  Ran result;
#ifdef __CUDACC__
  check_cuda(cudaGetLastError(), "launch");
  if (m.options().samples > 0) result.timing = time_on_gpu(launch, m.options().samples);
#else
  result.report = m.reports().back();
#endif
  result.findings = m.findings();
  return result;
}

// #region host-scale
Ran scale(const MachineOptions& options, float a, const Floats& host_x, Floats& host_y) {
  Machine m(options);  // the device
  const int n = static_cast<int>(host_x.size());
  const Array<float> x = m.upload("x", host_x.data(), host_x.size());  // cudaMalloc, then cudaMemcpy to it
  const Array<float> y = m.alloc<float>("y", host_x.size());           // cudaMalloc
  const int threads = 128, blocks = (n + threads - 1) / threads;       // ceil(n / threads)
  const Ran result = ran(m, [&] { index::scale<<<blocks, threads>>>(a, x.data(), y.data(), n); });
  m.download(host_y.data(), y);  // cudaMemcpy back
  return result;
}
// #endregion

Ran scale_apart(const MachineOptions& options, float a, const Floats& host_x, Floats& host_y) {
  Machine m(options);
  const int n = static_cast<int>(host_x.size());
  const Array<float> x = m.upload("x", host_x.data(), host_x.size());
  const Array<float> y = m.alloc<float>("y", host_x.size());
  const Ran result = ran(m, [&] { index::scale_apart<<<n / 128, 128>>>(a, x.data(), y.data(), n); });
  m.download(host_y.data(), y);
  return result;
}

// #region host-transpose
template <auto kernel>
Ran transposed(const MachineOptions& options, const Floats& host_in, Floats& host_out, int n) {
  Machine m(options);
  const Array<float> in = m.upload("in", host_in.data(), host_in.size());
  const Array<float> out = m.alloc<float>("out", host_in.size());
  const unsigned tiles = static_cast<unsigned>((n + tile::side - 1) / tile::side);
  const dim3 grid(tiles, tiles), block(tile::side, tile::side);
  const Ran result = ran(m, [&] { kernel<<<grid, block>>>(in.data(), out.data(), n); });
  m.download(host_out.data(), out);
  return result;
}
// #endregion

// #region host-naive
Ran naive_attention(const MachineOptions& options, const Floats& q, const Floats& k, const Floats& v, Floats& o) {
  Machine m(options);
  const int N = static_cast<int>(q.size()) / naive::D, threads = 64, blocks = (N + threads - 1) / threads;
  const float scale = static_cast<float>(1 / std::sqrt(naive::D));
  const Array<float> Q = m.upload("Q", q.data(), q.size());
  const Array<float> K = m.upload("K", k.data(), k.size());
  const Array<float> V = m.upload("V", v.data(), v.size());
  const Array<float> S = m.alloc<float>("S", static_cast<std::size_t>(N) * static_cast<std::size_t>(N));
  const Array<float> O = m.alloc<float>("O", o.size());
  const Ran result = ran(
      m, [&] { naive::attention<<<blocks, threads>>>(Q.data(), K.data(), V.data(), S.data(), O.data(), N, scale); });
  m.download(o.data(), O);
  return result;
}
// #endregion

// #region host-tiled
// The steps 4 to 9, whose kernels take the same arguments. Those with a softmax in base 2 want scale · log2 e.
enum class Base { e, two };
template <auto kernel, Base base>
Ran tiled_attention(const MachineOptions& options, const Floats& q, const Floats& k, const Floats& v, Floats& o) {
  Machine m(options);
  const int N = static_cast<int>(q.size()) / tiled::D, blocks = (N + tiled::Br - 1) / tiled::Br;
  const float natural = static_cast<float>(1 / std::sqrt(tiled::D));
  const float scale = base == Base::two ? scale_log2(natural) : natural;
  const Array<float> Q = m.upload("Q", q.data(), q.size());
  const Array<float> K = m.upload("K", k.data(), k.size());
  const Array<float> V = m.upload("V", v.data(), v.size());
  const Array<float> O = m.alloc<float>("O", o.size());
  const Ran result = ran(m, [&] { kernel<<<blocks, tiled::Br>>>(Q.data(), K.data(), V.data(), O.data(), N, scale); });
  m.download(o.data(), O);
  return result;
}
// #endregion

}  // namespace

static const bool added = [] {
  steps_by_machine[static_cast<std::size_t>(this_machine)] = {
      .scale = scale,
      .scale_apart = scale_apart,
      .transpose_directly = transposed<tile::transpose_directly>,
      .transpose = transposed<tile::transpose>,
      .transpose_without_barrier = transposed<tile::transpose_without_barrier>,
      .naive = naive_attention,
      .tiled = tiled_attention<tiled::attention, Base::e>,
      .padded = tiled_attention<padded::attention, Base::e>,
      .reuse = tiled_attention<reuse::attention, Base::e>,
      .float4s = tiled_attention<float4s::attention, Base::e>,
      .exp2s = tiled_attention<exp2s::attention, Base::two>,
      .unrolled = tiled_attention<unrolled::attention, Base::two>,
  };
  return true;
}();

}  // namespace flash::phase05::inline FLASH_MACHINE
