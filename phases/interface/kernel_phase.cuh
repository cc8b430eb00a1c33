// kernel_phase.cuh: the host's side of a kernel phase, what is the same in all of them: memory, blocks, time, entries.
// A phase writes its kernel, its shared struct and a launch; run_forward() brings a problem to the device, calls the
// launch with the D, Br and Bc that its features list, and brings O back. One copy per machine.
#pragma once
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "phases/interface/device.cuh"
#ifdef __CUDACC__
#include "gpu/timer.cuh"
#endif
#include "phases/interface/phase.hpp"
#include "sim/limits.hpp"

namespace flash::inline FLASH_MACHINE {

#if defined(__CUDACC__)
inline constexpr Where this_machine = Where::Gpu;
#elif defined(FLASH_CHECKED)
inline constexpr Where this_machine = Where::Checked;
#else
inline constexpr Where this_machine = Where::Sim;
#endif

#ifndef __CUDACC__
inline void check_cuda(cudaError_t, const char*) {}  // the simulator throws where CUDA returns an error
#endif

// What the launch of a forward phase is given; T is the kernel's element type.
template <class T>
struct DeviceProblem {
  Heads<const T> Q;          // [B, H, Sq, D]
  Heads<const T> K, V;       // [B, H, Sk, D]
  Heads<T> O;                // [B, H, Sq, D]
  float* LSE;                // [B, H, Sq], or null: not wanted
  Heads<std::int16_t> O_lo;  // [B, H, Sq, D] and [B, H, Sq]: what a forward pass for training keeps (gradients.hpp);
  float *m, *l;              // or null
  float scale_log2;          // scale · log2 e: kernels use exp2(x · log2 e) for exp(x)
  std::int64_t shift;        // row i sees the keys j <= i + shift
  int B, H;
  cudaStream_t stream;          // null: the default one
  unsigned* counter = nullptr;  // [1] of a persistent grid: 0 before and after the launch
};

// ---- Sizes: which instantiation -------------------------------------------------------------------------------------

// Calls f.template operator()<D, Br, Bc>(), D padded to the next that the features list, with blocks that they list.
// Others are refused: nothing must seem to have run.
template <const Features& kCan, class F>
void with_sizes(std::int64_t D, Blocks blocks, const F& f) {
  const auto with_blocks = [&]<int kD, std::size_t... b>(std::index_sequence<b...>) {
    const auto call = [&]<int Br, int Bc>() {
      if constexpr (kCan.has(kD, {Br, Bc})) f.template operator()<kD, Br, Bc>();
      return kCan.has(kD, {Br, Bc});
    };
    return ((blocks == kCan.blocks[b] && call.template operator()<kCan.blocks[b].Br, kCan.blocks[b].Bc>()) || ...);
  };
  using AllBlocks = std::make_index_sequence<kCan.blocks.size()>;
  const bool ran = [&]<std::size_t... d>(std::index_sequence<d...>) {
    return ((D <= kCan.head_dims[d] && with_blocks.template operator()<kCan.head_dims[d]>(AllBlocks())) || ...);
  }
  (std::make_index_sequence<kCan.head_dims.size()>());
  if (!ran)
    refuse("sizes", std::to_string(blocks.Br) + "x" + std::to_string(blocks.Bc) + " at D = " + std::to_string(D),
           "blocks and a D that the phase's features list", "list them");
}

// The options, with the blocks that a kernel prefers for these sizes, preferred(sizes), where the caller asks for none.
template <class Kernel>
Options with_preferred_blocks(const Sizes& sizes) {
  Options options = sizes.options;
  if constexpr (requires { Kernel::preferred(sizes); })
    if (!options.block_q && !options.block_k) {
      const Blocks blocks = Kernel::preferred(sizes);
      options.block_q = blocks.Br, options.block_k = blocks.Bc;
    }
  return options;
}

// The blocks that the caller asked for, or the first whose shared memory fits.
template <const Features& kCan, template <int, int, int> class Tiles>
Blocks choose_blocks(const Options& options, std::int64_t D, std::int64_t available) {
  const auto bytes = [&](Blocks blocks) {
    std::int64_t size = 0;
    with_sizes<kCan>(D, blocks, [&]<int kD, int Br, int Bc>() { size = sizeof(Tiles<kD, Br, Bc>); });
    return size;
  };
  const auto text = [](std::int64_t Br, std::int64_t Bc) {
    return (Br ? std::to_string(Br) : "any") + "x" + (Bc ? std::to_string(Bc) : "any");
  };
  const Blocks* listed = nullptr;
  std::string list;
  for (const Blocks& blocks : kCan.blocks) {
    if (!kCan.has(kCan.padded(D), blocks)) continue;
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
inline std::int64_t shared_memory_of(const MachineOptions& options) {
#ifdef __CUDACC__
  int device = 0, bytes = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "shared memory per block");
  return std::min<std::int64_t>(bytes, static_cast<std::int64_t>(shared_memory_limit(options.profile)));
#else
  return static_cast<std::int64_t>(shared_memory_limit(options.profile));
#endif
}

// Multiprocessors of the current device.
inline int multiprocessors() {
#ifdef __CUDACC__
  int device = 0, count = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "number of multiprocessors");
  return count;
#else
  return simulated_multiprocessors;
#endif
}

// A grid of (tile, head): y ends at 65,535, more heads go on in z.
inline dim3 grid_of(std::int64_t length, int tile, std::int64_t heads) {
  return dim3(static_cast<unsigned>((length + tile - 1) / tile),
              static_cast<unsigned>(std::min<std::int64_t>(heads, 65535)),
              static_cast<unsigned>((heads + 65534) / 65535));
}

// A block with more than 48 KiB of dynamic shared memory must ask for it.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "shared memory opt-in");
}

inline float scale_log2(float scale) {
  return static_cast<float>(static_cast<double>(scale) * 1.4426950408889634);  // rounded once
}

// What becomes of the K/V tiles of all Q tiles, by the mask alone.
inline TileCounts count_tiles(const Sizes& s, Blocks blocks) {
  TileCounts counts;
  for (std::int64_t first_row = 0; first_row < s.Sq; first_row += blocks.Br) {
    const std::int64_t last_row = std::min(first_row + blocks.Br, s.Sq) - 1;
    const std::int64_t full = s.visible(first_row).end / blocks.Bc,
                       seen = (s.visible(last_row).end + blocks.Bc - 1) / blocks.Bc;
    counts.add(s.B * s.H, full, seen, (s.Sk + blocks.Bc - 1) / blocks.Bc);
  }
  return counts;
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

// A view as a kernel's argument: its data are where the kernel can reach them.
template <class T>
auto tensor_of(const View<T>& view) {
  using U = device_t<std::remove_const_t<T>>;
  using Element = std::conditional_t<std::is_const_v<T>, const U, U>;
  return Heads<Element>{reinterpret_cast<Element*>(view.data),
                        view.stride[0],
                        view.stride[1],
                        view.stride[2],
                        view.S(),
                        static_cast<int>(view.D())};
}

// A view's elements in device memory, gaps included, so that its strides hold there too. MachineOptions::in_place: the
// caller's own memory (the simulator follows any pointer).
template <class T>
class DeviceView {
 public:
  using U = device_t<std::remove_const_t<T>>;
  DeviceView(Machine& m, const char* name, const View<T>& view) : view_(view), in_place_(m.options().in_place) {
    if (in_place_) return;
    const auto span = static_cast<std::size_t>(view.span());
    if constexpr (std::is_const_v<T>)
      array_.push_back(m.upload(name, view.data, span));
    else
      array_.push_back(m.template alloc<T>(name, span));  // nothing is copied in: what no thread writes stays poison
  }
  // As a kernel's argument; its data is null where the view's is.
  auto tensor() const {
    auto tensor = tensor_of(view_);
    if (!in_place_ && view_.data) tensor.data = array_[0].data();
    return tensor;
  }
  // Copies the rows back and leaves the host's gaps alone.
  void download(Machine& m) const {
    if (in_place_ || view_.span() == 0) return;
    std::vector<T> span(static_cast<std::size_t>(view_.span()));
    m.download(span.data(), array_[0]);
    for (std::int64_t b = 0; b < view_.B(); ++b)
      for (std::int64_t h = 0; h < view_.H(); ++h)
        for (std::int64_t s = 0; s < view_.S(); ++s)
          std::memcpy(view_.row(b, h, s), &span[static_cast<std::size_t>(view_.row(b, h, s) - view_.data)],
                      static_cast<std::size_t>(view_.D()) * sizeof(T));
  }

 private:
  View<T> view_;
  bool in_place_;
  std::vector<Array<U>> array_;  // one, or none in place
};

// ---- A run ----------------------------------------------------------------------------------------------------------

// Runs `launches` and takes the time; collects what the machine knows about them.
template <class F>
Run timed(Machine& m, const F& launches) {
  const auto begin = std::chrono::steady_clock::now();
  launches();
  check_cuda(cudaGetLastError(), "launch");
  check_cuda(cudaDeviceSynchronize(), "kernel");
  Run run;
  run.kernels = m.reports();
  run.trace = m.trace();
  run.counted = this_machine == Where::Checked;
  run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  for (const KernelReport& kernel : run.kernels) run.ledger.add(kernel.ledger);
#ifdef __CUDACC__
  if (m.options().samples > 0) run.timing = time_on_gpu(launches, m.options().samples);
#endif
  return run;
}

// A problem whose tensors are where the kernel can reach them, as launches take it.
template <class T>
DeviceProblem<device_t<T>> device_problem(const Problem<T>& p) {
  const Band<std::int64_t> band = p.options.mask.band(p.Sq(), p.Sk());
  std::int64_t heads = 0;  // 0 too where B or H is, whatever the other
  if (__builtin_mul_overflow(p.B(), p.H(), &heads) || std::max({p.B(), p.H(), heads}) > INT32_MAX)
    refuse("B x H", std::to_string(p.B()) + " x " + std::to_string(p.H()), "at most " + std::to_string(INT32_MAX),
           "split the batch");
  return {.Q = tensor_of(p.q),
          .K = tensor_of(p.k),
          .V = tensor_of(p.v),
          .O = tensor_of(p.o),
          .LSE = p.lse,
          .O_lo = {},
          .m = nullptr,
          .l = nullptr,
          .scale_log2 = scale_log2(p.scale()),
          .shift = band.cuts_right() ? band.right : p.Sk(),
          .B = static_cast<int>(p.B()),
          .H = static_cast<int>(p.H()),
          .stream = nullptr};
}

// Launches a forward phase. `Kernel` has the template Shared<D, Br, Bc>, the kernel's shared struct, and
// launch<T, D, Br, Bc>(DeviceProblem<T>).
template <const Features& kCan, class Kernel, class T>
void launch_forward(const DeviceProblem<T>& p, Blocks blocks) {
  if (p.B == 0 || p.H == 0 || p.Q.rows == 0) return;  // no row, no block
  with_sizes<kCan>(p.Q.cols, blocks, [&]<int D, int Br, int Bc>() { Kernel::template launch<T, D, Br, Bc>(p); });
}

// Does the kernel draw its work by DeviceProblem::counter?
template <class Kernel>
inline constexpr bool counts = requires {
  Kernel::counts;
};

// A forward phase on this machine, with tensors in the host's memory.
template <const Features& kCan, class Kernel, class T>
Run run_forward(const Problem<T>& p, const Kept& kept, const MachineOptions& options) {
  Machine m(options);
  const Blocks blocks = choose_blocks<kCan, Kernel::template Shared>(with_preferred_blocks<Kernel>(p.sizes()), p.D(),
                                                                     shared_memory_of(options));
  const DeviceView Q(m, "Q", p.q), K(m, "K", p.k), V(m, "V", p.v);
  const DeviceView O(m, "O", p.o);
  const std::int64_t rows = p.B() * p.H() * p.Sq();
  const auto row_array = [&](const char* name, float* data) {
    return DeviceView<float>(m, name, dense_view(data, {1, 1, data ? rows : 0, 1}));
  };
  const auto LSE = row_array("LSE", p.lse), row_max = row_array("m", kept.m), row_sum = row_array("l", kept.l);
  const DeviceView O_lo(m, "O_lo", kept.o_lo);
  DeviceProblem<device_t<T>> device = device_problem(p);
  device.Q = Q.tensor(), device.K = K.tensor(), device.V = V.tensor();
  device.O = O.tensor(), device.LSE = LSE.tensor().data;
  device.O_lo = O_lo.tensor(), device.m = row_max.tensor().data, device.l = row_sum.tensor().data;
  const unsigned zero = 0;
  std::vector<decltype(m.upload("counter", &zero, 1))> counter;  // one, or none
  if constexpr (counts<Kernel>) {
    counter.push_back(m.upload("counter", &zero, 1));
    device.counter = counter[0].data();
  }
  Run run = timed(m, [&] { launch_forward<kCan, Kernel>(device, blocks); });
  run.blocks = blocks;
  if (kCan.causal) run.tiles = count_tiles(p.sizes(), blocks);
  O.download(m);
  O_lo.download(m);
  for (const auto* rows_of : {&LSE, &row_max, &row_sum}) rows_of->download(m);
  return run;
}

// A forward phase on a stream of the current device, with tensors in its memory (StreamEntry): launches where there is
// a workspace, and does not wait.
template <const Features& kCan, class Kernel, class T>
std::size_t enqueue_forward(const Problem<T>& p, const std::function<void*(std::size_t)>& workspace, void* stream) {
  DeviceProblem<device_t<T>> device = device_problem(p);
  device.stream = static_cast<cudaStream_t>(stream);
  const Blocks blocks = choose_blocks<kCan, Kernel::template Shared>(with_preferred_blocks<Kernel>(p.sizes()), p.D(),
                                                                     shared_memory_of(MachineOptions()));
  const std::size_t bytes = counts<Kernel> ? sizeof *device.counter : 0;
  if (!workspace) return bytes;
  if (bytes > 0) device.counter = static_cast<unsigned*>(workspace(bytes));
  launch_forward<kCan, Kernel>(device, blocks);
  check_cuda(cudaGetLastError(), "launch");
  return bytes;
}

// The entry points of a forward phase, for the types that its features list.
template <const Features& kCan, class Kernel>
Entries forward_entries() {
  Entries entries;
  const auto add = []<class T>(ForwardEntry<T>& entry) {
    if constexpr (kCan.types.contains(type_of<T>)) entry = run_forward<kCan, Kernel, T>;
  };
  std::apply([&](auto&... each) { (add(each), ...); }, entries.forward);
  if constexpr (this_machine == Where::Gpu) {
    const auto add_stream = []<class T>(StreamEntry<T>& entry) {
      if constexpr (kCan.types.contains(type_of<T>)) entry = enqueue_forward<kCan, Kernel, T>;
    };
    std::apply([&](auto&... each) { (add_stream(each), ...); }, entries.on_stream);
  }
  return entries;
}

}  // namespace flash::inline FLASH_MACHINE
