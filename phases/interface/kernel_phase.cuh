// kernel_phase.cuh: the host's side of a kernel phase, what is the same in all of them: memory, blocks, time, entries.
// A phase writes its kernel, its shared struct and a launch; run_pass() brings a problem to the device, calls the
// launch with the D, Br and Bc that its features list, and brings results back. One copy per machine.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <utility>

#include "phases/interface/device.cuh"
#include "phases/interface/phase.hpp"
#include "sim/limits.hpp"
#ifdef __CUDACC__
#include <map>
#endif

namespace flash::inline FLASH_MACHINE {

#if defined(__CUDACC__) && !defined(FLASH_PROGRAM)  // as in gpu/kernel.cuh
inline constexpr Where this_machine = Where::Gpu;
#elif defined(FLASH_CHECKED)
inline constexpr Where this_machine = Where::Checked;
#else
inline constexpr Where this_machine = Where::Sim;
#endif

#if !defined(__CUDACC__) || defined(FLASH_PROGRAM)
inline void check_cuda(cudaError_t, const char*) {}  // the simulator throws where CUDA returns an error
#endif

// What a problem says of its sequences (phase 27); null where it does not.
struct SequenceArrays {
  const std::int32_t *first_rows, *first_keys;  // [N + 1]
  const std::int32_t *rows_of, *keys_of;        // [N]
  std::int64_t N;
};

// What a launch is given; T is the kernel's element type. Arrays that the problem does not have are null.
template <class T>
struct DeviceProblem {
  Heads<const T> Q, dO;      // [B, H, Sq, D]
  Heads<const T> K, V;       // [B, Hk, Sk, D]
  Heads<T> O, dQ, dK, dV;    // as Q, Q, K, V; the backward pass reads O
  Heads<float> O_wide;       // in place of O's data where O is wanted in fp32 and T is not
  Heads<std::int16_t> O_lo;  // [B, H, Sq, D] and [B, H, Sq]: what a forward pass for training keeps
  float *m, *l;              //
  float *LSE, *dLSE;         // [B, H, Sq]
  float scale, scale_log2;   // scale · log2 e: kernels use exp2(x · log2 e) for exp(x)
  Band<std::int64_t> band;   // which keys a row sees
  Dropout dropout;           // which numbers of P are left out
  int B, H, Hk;
  BackwardMode mode;
  cudaStream_t stream = nullptr;     // null: the default one
  std::array<void*, 8> workspace{};  // a pointer for each piece
  unsigned* counter = nullptr;       // [1] of a persistent grid: 0 before and after the launch
  Mask mask = {};                    // whose band it is
  SequenceArrays sequences = {};
  const void* found = nullptr;  // where those lie, or which tiles there are: what a kernel in front finds
  int cut_batch = 0;  // not 0: TMA's boxes end where their sequences do, and the tensors have so many batch entries
  const AnyProblem* all = nullptr;  // with what few phases ask for; its arrays are device memory
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

// The options; where the caller asks for no blocks, with those that a kernel prefers for these sizes.
template <class Kernel>
Options with_preferred_blocks(const AnyProblem& p) {
  Options options = p.options;
  if constexpr (requires { Kernel::preferred(p); })
    if (!options.block_q && !options.block_k) {
      const Blocks blocks = Kernel::preferred(p);
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
  const Blocks* listed = nullptr;
  for (const Blocks& blocks : kCan.blocks) {
    if (!kCan.has(kCan.padded(D), blocks)) continue;
    if (options.block_q && options.block_q != blocks.Br) continue;
    if (options.block_k && options.block_k != blocks.Bc) continue;
    if (bytes(blocks) <= available) return blocks;
    if (!listed) listed = &blocks;
  }
  const auto text = [](std::int64_t Br, std::int64_t Bc) {
    return (Br ? std::to_string(Br) : "any") + "x" + (Bc ? std::to_string(Bc) : "any");
  };
  std::string list;
  for (const Blocks& blocks : kCan.blocks)
    if (kCan.has(kCan.padded(D), blocks)) list += (list.empty() ? "" : ", ") + text(blocks.Br, blocks.Bc);
  if (!listed)
    refuse("block size", text(options.block_q, options.block_k), "one of " + list, "omit --block-q and --block-k");
  refuse("shared memory for blocks " + text(listed->Br, listed->Bc) + " at D = " + std::to_string(D),
         std::to_string(bytes(*listed)) + " bytes", "at most " + std::to_string(available) + " on this machine",
         "choose smaller blocks of " + list);
}

std::int64_t shared_memory_of(const MachineOptions& options);  // that a block may have, in bytes
int multiprocessors();  // of the current device, without those that this thread's launch leaves to others

// For the launches in its scope.
class SpareMultiprocessors {
 public:
  explicit SpareMultiprocessors(int count);
  ~SpareMultiprocessors();
};

// A grid of (tile, head): y ends at 65,535, more heads go on in z.
inline dim3 grid_of(std::int64_t length, int tile, std::int64_t heads) {
  return dim3(static_cast<unsigned>((length + tile - 1) / tile),
              static_cast<unsigned>(std::min<std::int64_t>(heads, 65535)),
              static_cast<unsigned>((heads + 65534) / 65535));
}

#ifdef __CUDACC__
inline int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}
#endif

// A block with more than 48 KiB of dynamic shared memory must ask for it. A kernel keeps this as long as the device its
// context: each thread asks once for each device.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
#ifdef __CUDACC__
  thread_local std::map<std::pair<Kernel*, int>, std::size_t> allowed;
  std::size_t& known = allowed[{kernel, current_device()}];
  if (known == bytes) return;
#endif
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "shared memory opt-in");
#ifdef __CUDACC__
  known = bytes;
#endif
}

inline float scale_log2(float scale) {
  return static_cast<float>(static_cast<double>(scale) * 1.4426950408889634);  // rounded once
}

// ---- A run: host.cu, compiled once for each machine -----------------------------------------------------------------

// Runs `launches` and takes the time; collects what the machine knows about them.
Run timed(Machine& m, const std::function<void()>& launches);

// The launches of a pass: the problem's arrays are where the kernel can reach them, the workspace likewise.
using Launches = std::function<void(const AnyProblem& p, const Stream& stream)>;
// Brings the problem's arrays to the device, runs the launches, brings results back.
Run run_on_device(const AnyProblem& p, const Workspace& workspace, const MachineOptions& options,
                  const Launches& launches);

// What becomes of the K/V tiles of all Q tiles, by the mask alone.
TileCounts count_tiles(const AnyProblem& p, Blocks blocks);

// ---- A launch -------------------------------------------------------------------------------------------------------

// A view as a kernel's argument.
template <class T>
Heads<T> heads_of(const AnyView& view) {
  return {static_cast<T*>(view.data), view.stride[0], view.stride[1], view.stride[2], view.S(),
          static_cast<int>(view.D())};
}

// Rows from one batch entry to the next, where those are rows of one tensor (phase 27).
template <class T>
std::int64_t entry_of(const Heads<T>& x, std::int64_t B) {
  return B > 1 && x.stride > 0 ? x.b_stride / x.stride : 0;
}

inline void check_heads(const AnyProblem& p) {
  std::int64_t heads = 0;  // 0 too where B or H is, whatever the other
  if (__builtin_mul_overflow(p.B(), p.H(), &heads) || std::max({p.B(), p.H(), heads}) > INT32_MAX)
    refuse("B x H", std::to_string(p.B()) + " x " + std::to_string(p.H()), "at most " + std::to_string(INT32_MAX),
           "split the batch");
}

template <class T>
DeviceProblem<T> device_problem(const AnyProblem& p, const Stream& stream) {
  const auto row_array = [](const AnyView& view) { return static_cast<float*>(view.data); };
  const auto numbers = [](const AnyView& view) { return static_cast<const std::int32_t*>(view.data); };
  AnyView O = p.o, O_wide;
  if (p.out != p.type) O_wide = p.o, O.data = nullptr;
  return {.Q = heads_of<const T>(p.q),
          .dO = heads_of<const T>(p.dout),
          .K = heads_of<const T>(p.k),
          .V = heads_of<const T>(p.v),
          .O = heads_of<T>(O),
          .dQ = heads_of<T>(p.dq),
          .dK = heads_of<T>(p.dk),
          .dV = heads_of<T>(p.dv),
          .O_wide = heads_of<float>(O_wide),
          .O_lo = heads_of<std::int16_t>(p.o_lo),
          .m = row_array(p.m),
          .l = row_array(p.l),
          .LSE = row_array(p.lse),
          .dLSE = row_array(p.dlse),
          .scale = p.scale(),
          .scale_log2 = scale_log2(p.scale()),
          .band = p.options.mask.band(p.Sq(), p.Sk()),
          .dropout = p.options.dropout,
          .B = static_cast<int>(p.B()),
          .H = static_cast<int>(p.H()),
          .Hk = static_cast<int>(p.k.H()),
          .mode = p.options.mode,
          .stream = static_cast<cudaStream_t>(stream.stream),
          .workspace = stream.workspace,
          .counter = static_cast<unsigned*>(stream.workspace[0]),
          .mask = p.options.mask,
          .sequences = {numbers(p.first_rows), numbers(p.first_keys), numbers(p.rows_of), numbers(p.keys_of),
                        p.sequences()},
          .all = &p};
}

// Launches a pass. `Kernel` has the template Shared<D, Br, Bc>, its kernel's shared struct, and
// launch<T, D, Br, Bc>(DeviceProblem<T>).
template <const Features& kCan, class Kernel>
void launch_pass(const AnyProblem& p, Blocks blocks, const Stream& stream) {
  if (p.B() == 0 || p.H() == 0 || (p.Sq() == 0 && !p.backward())) return;  // no row, no block
  const SpareMultiprocessors spare(p.options.spare_multiprocessors);
  const auto launch = [&]<class T>() {
    if constexpr (kCan.types.contains(type_of<T>)) {
      using U = device_t<T>;
      const DeviceProblem<U> problem = device_problem<U>(p, stream);
      with_sizes<kCan>(p.widest(), blocks,
                       [&]<int D, int Br, int Bc>() { Kernel::template launch<U, D, Br, Bc>(problem); });
    }
  };
  p.type == Type::Float32   ? launch.template operator()<float>()
  : p.type == Type::Float16 ? launch.template operator()<half>()
                            : launch.template operator()<bfloat16>();
}

template <const Features& kCan, class Kernel>
Blocks blocks_of_pass(const AnyProblem& p, const MachineOptions& options) {
  check_heads(p);
  if constexpr (requires { Kernel::check(p); }) Kernel::check(p);
  return choose_blocks<kCan, Kernel::template Shared>(with_preferred_blocks<Kernel>(p), p.widest(),
                                                      shared_memory_of(options));
}

// A pass on this machine, with the problem's arrays in the host's memory (Entry).
template <const Features& kCan, class Kernel>
Run run_pass(const AnyProblem& p, const MachineOptions& options) {
  const Blocks blocks = blocks_of_pass<kCan, Kernel>(p, options);
  Run run = run_on_device(p, kCan.workspace(p), options, [&](const AnyProblem& device, const Stream& stream) {
    launch_pass<kCan, Kernel>(device, blocks, stream);
  });
  run.blocks = blocks;
  if (kCan.meets(Demand::Causal)) run.tiles = count_tiles(p, blocks);
  return run;
}

// A pass on a stream of the current device (StreamEntry). The simulator has one stream.
template <const Features& kCan, class Kernel>
void enqueue_pass(const AnyProblem& p, const Stream* stream) {
  const Blocks blocks = blocks_of_pass<kCan, Kernel>(p, {});
  if (!stream) return;
  launch_pass<kCan, Kernel>(p, blocks, *stream);
  check_cuda(cudaGetLastError(), "launch");
}

// Adds a pass's entry points for this machine when the program starts.
template <const Features& kCan, class Kernel>
Added added_pass(Pass& pass) {
  return {pass, this_machine, run_pass<kCan, Kernel>, enqueue_pass<kCan, Kernel>};
}

}  // namespace flash::inline FLASH_MACHINE
