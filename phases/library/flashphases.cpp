// flashphases.cpp: see flashphases.h. Checks the arguments as the phases do, chooses the phase, enqueues its kernels.
// No exception leaves a call: it becomes a status and a line of text. Without FLASH_HAVE_CUDA no GPU computes; with the
// kernels for the simulator that does.
// Use: libflashphases.so, which CMakeLists.txt builds and installs.
#include "phases/library/flashphases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#ifdef FLASH_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "phases/definition/phase.hpp"
#include "phases/interface/capability.hpp"
#include "phases/interface/operands.hpp"
#include "phases/interface/validate.hpp"
#include "phases/library/automatic.hpp"
#include "sim/report/found.hpp"

static_assert(FLASHPHASES_VERSION_MAJOR == FLASH_VERSION_MAJOR && FLASHPHASES_VERSION_MINOR == FLASH_VERSION_MINOR,
              "flashphases.h and CMakeLists.txt say different versions");

namespace flash {
namespace {

using Args = flashphases_forward_args;
using BackwardArgs = flashphases_backward_args;

struct NoGpu : Error {
  using Error::Error;
};

thread_local std::string last_error;

// What the simulator has found follows with its whole text.
int failed(flashphases_status status, const char* text, const std::vector<Finding>& findings = {}) noexcept {
  try {
    last_error = text;
    for (const Finding& finding : findings) last_error += "\n" + finding.text;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

template <class F>
int guarded(const F& call) noexcept {
  try {
    call();
    return FLASHPHASES_OK;
  } catch (const NoGpu& e) {
    return failed(FLASHPHASES_NO_GPU, e.what());
  } catch (const Found& e) {
    return failed(FLASHPHASES_FINDING, e.what(), e.findings);
  } catch (const MachineError& e) {
    return failed(FLASHPHASES_CUDA_ERROR, e.what());
  } catch (const Error& e) {
    return failed(FLASHPHASES_BAD_ARGUMENT, e.what());
  } catch (const std::bad_alloc&) {
    return failed(FLASHPHASES_OUT_OF_MEMORY, "the host is out of memory");
  } catch (const std::exception& e) {
    return failed(FLASHPHASES_CUDA_ERROR, e.what());
  }
}

void check_pointer(const char* name, const void* pointer) {
  if (!pointer) refuse(name, "null", "a pointer", "pass one");
}

// Sizes of a struct in the programs of earlier versions; no struct of a later one is larger than 4096.
template <class T>
constexpr std::initializer_list<std::uint32_t> earlier_sizes = {};
template <>
constexpr std::initializer_list<std::uint32_t> earlier_sizes<Args> = {offsetof(Args, machine),
                                                                      offsetof(Args, mask_shift)};
static_assert(offsetof(Args, machine) == 208 && offsetof(Args, mask_shift) == 512);
constexpr std::uint32_t largest_size = 4096;

// The caller's struct in this version's layout; what an earlier one lacks is 0. A later version's is taken if what it
// knows more is 0.
template <class T>
T read(const T* args, const char* name, const char* type) {
  check_pointer(name, args);
  const std::uint32_t size = args->struct_size;
  std::string sizes;
  bool known = sizeof(T) <= size && size <= largest_size;
  for (const std::uint32_t earlier : earlier_sizes<T>)
    known |= size == earlier, sizes += std::to_string(earlier) + ", ";
  if (!known)
    refuse("struct_size", size,
           sizes + (sizes.empty() ? "" : "or ") + std::to_string(sizeof(T)) + " to " + std::to_string(largest_size),
           std::string("set it to sizeof(") + type + ")");
  const auto* bytes = reinterpret_cast<const unsigned char*>(args);
  for (std::uint32_t i = sizeof(T); i < size; ++i)
    if (bytes[i])
      refuse("byte " + std::to_string(i) + " of the arguments", static_cast<int>(bytes[i]),
             std::string("0 for version ") + FLASH_VERSION, "use a newer libflashphases");
  T whole{};
  std::memcpy(&whole, args, std::min<std::size_t>(size, sizeof whole));
  return whole;
}

Type type_of_args(const Args& a) {
  switch (a.type) {
    case FLASHPHASES_FLOAT32:
      return Type::Float32;
    case FLASHPHASES_FLOAT16:
      return Type::Float16;
    case FLASHPHASES_BFLOAT16:
      return Type::BFloat16;
  }
  refuse("type", a.type, "0 (float32), 1 (float16) or 2 (bfloat16)", "see enum flashphases_type");
}

// A bound of a window.
std::int64_t distance_of(const char* name, std::int64_t keys) {
  if (keys < -1) refuse(name, keys, "0 or more, or -1 for all", "correct it");
  return keys == -1 ? Mask::all : std::min(keys, Mask::all);
}

Mask window_of(const Args& a, Alignment alignment) {
  return {distance_of("window_left", a.window_left), distance_of("window_right", a.window_right), alignment};
}

Options options_of(const Args& a) {
  Options options;
  switch (a.mask) {
    case FLASHPHASES_MASK_NONE:
      break;
    case FLASHPHASES_CAUSAL_TOP_LEFT:
      options.mask = Mask::top_left();
      break;
    case FLASHPHASES_CAUSAL_BOTTOM_RIGHT:
      options.mask = Mask::bottom_right();
      break;
    case FLASHPHASES_WINDOW_TOP_LEFT:
      options.mask = window_of(a, Alignment::TopLeft);
      break;
    case FLASHPHASES_WINDOW_BOTTOM_RIGHT:
      options.mask = window_of(a, Alignment::BottomRight);
      break;
    default:
      refuse("mask", a.mask, "0 (none), 1 (top-left), 2 (bottom-right) or a window, 3 or 4",
             "see enum flashphases_mask");
  }
  if (a.mask < FLASHPHASES_WINDOW_TOP_LEFT && (a.window_left != 0 || a.window_right != 0))
    refuse(a.window_left ? "window_left" : "window_right", a.window_left ? a.window_left : a.window_right,
           "0 where mask is no window", "set mask to 3 or 4");
  if (a.mask == FLASHPHASES_MASK_NONE && a.mask_shift != 0)
    refuse("mask_shift", a.mask_shift, "0 where there is no mask", "set mask");
  if (a.mask_shift <= -Mask::all || a.mask_shift >= Mask::all)
    refuse("mask_shift", a.mask_shift, "less than 2^60, either way", "correct it");
  options.mask = options.mask.shifted(a.mask_shift);
  if (a.has_scale != 0 && a.has_scale != 1)
    refuse("has_scale", a.has_scale, "0 (1/sqrt(D)) or 1 (scale)", "set it to 1 to give a scale");
  if (a.has_scale == 0 && a.scale != 0)
    refuse("scale", a.scale, "0 where has_scale is 0", "set has_scale to 1 to use it");
  if (a.has_scale) options.scale = a.scale;
  options.block_q = a.block_q;
  options.block_k = a.block_k;
  options.softcap = a.softcap, options.spare_multiprocessors = a.spare_multiprocessors;
  options.dropout = {a.dropout, a.dropout_seed};
  options.threads = a.threads;
  return options;
}

// Tensors that are read and those that are written are one to a problem, which knows by its direction which is which.
flashphases_tensor as_tensor(const flashphases_input& t) {
  return {const_cast<void*>(t.data), t.stride_b, t.stride_h, t.stride_s};
}
AnyView view_of(const flashphases_tensor& t, std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) {
  return {t.data, {B, H, S, D}, {t.stride_b, t.stride_h, t.stride_s, 1}};
}
AnyView view_of(const flashphases_input& t, std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) {
  return view_of(as_tensor(t), B, H, S, D);
}

// Is it there? Strides alone are refused.
bool is_there(const char* name, const flashphases_tensor& t) {
  if (!t.data && (t.stride_b || t.stride_h || t.stride_s))
    refuse(std::string(name) + "'s data", "null", "a pointer beside its strides", "pass it, or set them to 0");
  return t.data;
}
// An array that may be left out. Where its stride is 0, all share what is there, so that this axis is 1.
AnyView optional_view(const char* name, const flashphases_tensor& t, std::array<std::int64_t, 4> shape) {
  if (!is_there(name, t)) return {};
  const std::array<std::int64_t, 3> strides = {t.stride_b, t.stride_h, t.stride_s};
  AnyView view{t.data, shape, dense_strides(shape)};
  for (std::size_t i = 0; i < 3; ++i) {
    if (strides[i] == 0) view.shape[i] = 1;
    if (strides[i] != 0) view.stride[i] = strides[i];
  }
  return view;
}
AnyView optional_view(const char* name, const flashphases_input& t, std::array<std::int64_t, 4> shape) {
  return optional_view(name, as_tensor(t), shape);
}
template <class T>
AnyView optional_view(const T* data, const std::array<std::int64_t, 4>& shape) {
  return data ? any_of(dense_view(data, shape)) : AnyView{};
}

AnyProblem problem_of(const Args& a) {
  const std::int64_t Hk = a.Hk ? a.Hk : a.H, Dv = a.Dv ? a.Dv : a.D;
  const auto blocks = [](std::int64_t S) { return (S + mask_block - 1) / mask_block; };
  AnyProblem p;
  p.type = p.out = type_of_args(a);
  if (a.wide_output != 0 && a.wide_output != 1)
    refuse("wide_output", a.wide_output, "0 (of the type of Q) or 1 (float32)", "set it to 1 for O in float32");
  if (a.wide_output) p.out = Type::Float32;
  p.options = options_of(a);
  p.q = view_of(a.q, a.B, a.H, a.Sq, a.D), p.k = view_of(a.k, a.B, Hk, a.Sk, a.D);
  p.v = view_of(a.v, a.B, Hk, a.Sk, Dv), p.o = view_of(a.o, a.B, a.H, a.Sq, Dv);
  p.lse = row_view(a.lse, p.q), p.m = row_view(a.m, p.q), p.l = row_view(a.l, p.q);
  if (is_there("O_lo", a.o_lo)) p.o_lo = view_of(a.o_lo, a.B, a.H, a.Sq, Dv);
  p.slopes = optional_view("slopes", a.slopes, {a.B, a.H, 1, 1});
  p.bias = optional_view("bias", a.bias, {a.B, a.H, a.Sq, a.Sk});
  p.allowed = optional_view("mask", a.bool_mask, {a.B, a.H, a.Sq, a.Sk});
  p.document_q = optional_view("doc_q", a.doc_q, {a.B, 1, a.Sq, 1});
  p.document_k = optional_view("doc_k", a.doc_k, {a.B, 1, a.Sk, 1});
  p.blocks = optional_view("block_mask", a.block_mask, {a.B, a.H, blocks(a.Sq), blocks(a.Sk)});
  p.sinks = optional_view(a.sinks, {1, a.H, 1, 1});
  if (a.N < 0) refuse("N", a.N, "0 or more", "pass the number of sequences");
  if (a.N != 0 && !a.cu_seqlens_q) refuse("N", a.N, "0 without cu_seqlens_q", "pass cu_seqlens_q and cu_seqlens_k");
  p.first_rows = optional_view(a.cu_seqlens_q, {1, 1, a.N + 1, 1});
  p.first_keys = optional_view(a.cu_seqlens_k, {1, 1, a.N + 1, 1});
  const std::int64_t sequences = a.cu_seqlens_q ? a.N : a.B;
  p.rows_of = optional_view(a.seqused_q, {1, 1, sequences, 1});
  p.keys_of = optional_view(a.seqused_k, {1, 1, sequences, 1});
  return p;
}

// What one call asks for.
struct Asked {
  AnyProblem problem;
  std::int32_t machine, phase;
  bool workspace_is_zero;
};

bool is_set(const char* name, std::int32_t value) {
  if (value != 0 && value != 1) refuse(name, value, "0 or 1", "correct it");
  return value;
}

// The structs of a call, in this version's layout; of a forward pass the second one is zeros.
struct Call {
  Args forward;
  BackwardArgs backward;
};
Call read_call(const Args* args) {
  return {read(args, "args", "flashphases_forward_args"), {}};
}
Call read_call(const BackwardArgs* args) {
  const BackwardArgs a = read(args, "args", "flashphases_backward_args");
  return {read(a.forward, "forward", "flashphases_forward_args"), a};
}

Asked asked_of(const Args& f) {
  return {problem_of(f), f.machine, f.phase, is_set("workspace_is_zero", f.workspace_is_zero)};
}
Asked asked_of(const Args& f, const BackwardArgs& a) {
  Asked asked{problem_of(f), f.machine, a.phase, is_set("workspace_is_zero", a.workspace_is_zero)};
  AnyProblem& p = asked.problem;
  p.direction = Direction::Backward;
  if (a.mode != FLASHPHASES_DETERMINISTIC && a.mode != FLASHPHASES_ATOMIC)
    refuse("mode", a.mode, "0 (deterministic) or 1 (atomic)", "see enum flashphases_mode");
  p.options.mode = a.mode == FLASHPHASES_ATOMIC ? BackwardMode::Atomic : BackwardMode::Deterministic;
  p.options.block_q = a.block_q, p.options.block_k = a.block_k;
  const Shape s = p.shape();
  p.dout = view_of(a.dout, s.B, s.H, s.Sq, s.Dv), p.dlse = row_view(a.dlse, p.q);
  p.dq = view_of(a.dq, s.B, s.H, s.Sq, s.D);
  p.dk = view_of(a.dk, s.B, s.Hk, s.Sk, s.D), p.dv = view_of(a.dv, s.B, s.Hk, s.Sk, s.Dv);
  p.dbias = optional_view("dbias", a.dbias, {s.B, s.H, s.Sq, s.Sk});
  p.dsinks = optional_view(a.dsinks, {1, s.H, 1, 1});
  return asked;
}
Asked asked_of(const Call& call) {
  return call.backward.struct_size ? asked_of(call.forward, call.backward) : asked_of(call.forward);
}

// The calling thread's device, of which what never changes is asked once; number -1: there is none.
struct Gpu {
  int number = -1;
  Capability capability{0, 0};
  bool reads_host_memory = false;  // do kernels reach any memory of the host?
};
Gpu current_gpu() {
#ifdef FLASH_HAVE_CUDA
  thread_local Gpu last;
  int number = -1, reads = 0;
  if (cudaGetDevice(&number) == cudaSuccess && number == last.number) return last;
  Gpu gpu{number};
  if (number >= 0 &&
      cudaDeviceGetAttribute(&gpu.capability.major, cudaDevAttrComputeCapabilityMajor, number) == cudaSuccess &&
      cudaDeviceGetAttribute(&gpu.capability.minor, cudaDevAttrComputeCapabilityMinor, number) == cudaSuccess &&
      cudaDeviceGetAttribute(&reads, cudaDevAttrPageableMemoryAccess, number) == cudaSuccess) {
    gpu.reads_host_memory = reads;
    return last = gpu;
  }
  cudaGetLastError();  // not an error of the next launch
#endif
  return {};
}

// Does this library hold the kernel for that machine?
bool is_held(const Features& can, Where where) {
  for (const Phase* phase : all_phases())
    for (const Pass* pass : {phase->forward, phase->backward})
      if (pass && &pass->features == &can && can.kernel && pass->stream_entries[static_cast<std::size_t>(where)])
        return true;
  return false;
}
bool runs_on(const Features& can, const Gpu& gpu) {
  return gpu.number >= 0 && runs_on(can, gpu.capability) && is_held(can, Where::Gpu);
}
bool holds_simulator(Where where) {
  const auto holds = [where](const Phase* phase) { return is_held(phase->forward->features, where); };
  return std::any_of(all_phases().begin(), all_phases().end(), holds);
}

bool meets_all(const Features& can, const AnyProblem& p) {
  return !unmet(p, can.meets) && p.widest() <= can.largest_D();
}

// No phase has all that is asked for in this type, and some have it in another: then it is the type that is refused.
void check_type(const AnyProblem& p) {
  std::string types, words;
  const auto add = [](std::string& list, const char* between, const char* word) {
    list += (list.empty() ? "" : between) + std::string(word);
  };
  for (const Type type : {Type::Float32, Type::Float16, Type::BFloat16}) {
    const bool has = std::any_of(all_phases().begin(), all_phases().end(), [&](const Phase* phase) {
      const Pass* const pass = phase->pass(p.direction);
      return pass && pass->features.kernel && pass->features.types.contains(type) && meets_all(pass->features, p);
    });
    if (has && type == p.type) return;
    if (has) add(types, " or ", name(type));
  }
  if (types.empty()) return;
  for (const DemandRow& row : demands::rows)
    if (met_by_variants(row.demand) && row.asked(p)) add(words, ", ", row.word);
  refuse("type", name(p.type), types + (words.empty() ? "" : " with " + words), "convert Q, K and V");
}

// The kernel phase of this number that has the direction. Of two (25 and 25m) one that runs here, of these one that can
// do the problem, if there is one; of these the later in the list, which has Hopper's instructions.
using Runs = std::function<bool(const Features&)>;
const Phase& numbered(std::int32_t number, Direction direction, const Runs& runs, const AnyProblem* p = nullptr) {
  std::string numbers;
  const Phase* named = nullptr;
  int last = 0, best = 0;
  for (const Phase* phase : all_phases()) {
    if (!phase->kernel() || !phase->pass(direction)) continue;
    const Features& can = phase->pass(direction)->features;
    const bool does = p && can.types.contains(p->type) && meets_all(can, *p);
    const int mine = std::atoi(phase->name), good = 2 * runs(can) + does;
    if (mine == number && (!named || good >= best)) named = phase, best = good;
    if (mine != last) numbers += " " + std::to_string(last = mine);
  }
  if (named) return *named;
  refuse(direction == Direction::Forward ? "phase" : "phase of the backward pass", number,
         "0 (the fastest measured) or one of" + numbers, "pass 0");
}

// Of an array that has elements.
void check_alignment(const char* name, const void* data, std::size_t element) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address % element != 0)
    refuse(std::string(name) + "'s address modulo " + std::to_string(element), address % element, "0",
           "align it to its elements");
}

// Can kernels of the device reach it?
void check_memory([[maybe_unused]] const char* name, [[maybe_unused]] const void* data,
                  [[maybe_unused]] const Gpu& gpu) {
#ifdef FLASH_HAVE_CUDA
  cudaPointerAttributes memory{};
  if (cudaPointerGetAttributes(&memory, data) != cudaSuccess)
    throw MachineError(std::string(name) + "'s memory: " + cudaGetErrorString(cudaGetLastError()));
  if (memory.type == cudaMemoryTypeDevice && memory.device != gpu.number)
    refuse(std::string(name) + "'s device", memory.device, std::to_string(gpu.number) + ", the current one",
           "call cudaSetDevice, or move the tensor");
  if (memory.type == cudaMemoryTypeUnregistered && !gpu.reads_host_memory)
    refuse(std::string(name) + "'s memory", "the host's", "device memory", "copy it with cudaMemcpy");
#endif
}

// Can the CPU reach it?
void check_host_memory([[maybe_unused]] const char* name, [[maybe_unused]] const void* data) {
#ifdef FLASH_HAVE_CUDA
  cudaPointerAttributes memory{};
  if (cudaPointerGetAttributes(&memory, data) != cudaSuccess)
    cudaGetLastError();  // no device: then it is no device's
  else if (memory.type == cudaMemoryTypeDevice)
    refuse(std::string(name) + "'s memory", "a device's", "the host's on the CPU", "copy it with cudaMemcpy");
#endif
}

void require_gpu(const Phase& phase, const Features& can, const Gpu& gpu) {
  if (!was_built(Where::Gpu))
    throw NoGpu("the library is built without CUDA; expected one with it; configure it with -DFLASH_CUDA=ON");
  if (gpu.number < 0) throw NoGpu("the GPU is missing; expected a CUDA device; look at nvidia-smi");
  if (runs_on(can, gpu)) return;
  if (!is_held(can, Where::Gpu))
    refuse("phase", phase.name, "one that this library holds for the GPU",
           "pass 0, or build it with -DFLASHPHASES_GPU= for all");
  try {
    require(phase.name, can, Where::Gpu);
  } catch (const Error& e) {
    throw NoGpu(e.what());
  }
}

// What a launch is given beside its arguments.
struct Launch {
  void* workspace;
  std::size_t workspace_bytes;
  void* stream;
};
struct Taken {
  const Phase* phase;
  Workspace workspace;          // that it needs, piece by piece,
  std::size_t workspace_bytes;  // and in one block
};

// Where a piece begins in the caller's workspace, which is one block: each at a multiple of 256 bytes.
std::size_t after(std::size_t begin, const Piece& piece) {
  return (begin + static_cast<std::size_t>(piece.count) * 4 + 255) / 256 * 256;
}

// What must be 0 before a launch, where the caller has not said that it is.
void clear([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes, [[maybe_unused]] void* stream) {
#ifdef FLASH_HAVE_CUDA
  if (const cudaError_t status = cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream)))
    throw MachineError(std::string("workspace: ") + cudaGetErrorString(status));
#endif
}

// The definition on the CPU: no phase but this one, no workspace, no stream.
const Phase& on_cpu(const Asked& asked) {
  if (asked.phase != 0) refuse("phase", asked.phase, "0 on the CPU, where the definition is the only one", "pass 0");
  return definition::phase;
}

// The phase of the number that was asked for, or the one that was measured fastest of those that run here.
const Phase& wanted(const Asked& asked, const Runs& runs) {
  if (asked.phase) return numbered(asked.phase, asked.problem.direction, runs, &asked.problem);
  const Phase& phase = *choose_phase(asked.problem, runs).phase;
  if (const Features& can = pass_of(phase, asked.problem.direction).features;
      !can.types.contains(asked.problem.type) || !meets_all(can, asked.problem))
    check_type(asked.problem);
  return phase;
}

// Calls check(name, data, bytes of an element) for each array that has elements.
template <class F>
void each_array(const AnyProblem& p, const F& check) {
  for (const Operand& operand : operands)
    if (is_given(operand, p) && (p.*operand.view).elements() > 0)
      check(operand.name, (p.*operand.view).data,
            static_cast<std::size_t>(bytes_of(type_of_elements(operand.element, p))));
}

// Of a phase that has been chosen, what does not depend on where arrays lie.
void check_call(const Asked& asked, const Phase& phase) {
  validate(asked.problem, phase);
  each_array(asked.problem, check_alignment);
}

Taken taken_on_gpu(const Asked& asked, const Gpu& gpu) {
  const Phase& phase = wanted(asked, [&](const Features& can) { return runs_on(can, gpu); });
  check_call(asked, phase);
  const Pass& pass = pass_of(phase, asked.problem.direction);
  require_gpu(phase, pass.features, gpu);
  Taken taken{&phase, pass.features.workspace(asked.problem), 0};
  const Workspace& pieces = taken.workspace;
  for (const Piece& piece : pieces)  // the last one needs no room behind it
    taken.workspace_bytes = &piece == pieces.end() - 1
                                ? taken.workspace_bytes + static_cast<std::size_t>(piece.count) * 4
                                : after(taken.workspace_bytes, piece);
  pass.on_stream(Where::Gpu, asked.problem, nullptr);
  return taken;
}

// ---- What was taken before ------------------------------------------------------------------------------------------
// Choosing and checking take longer than launching, and most calls are like one before.

// A call's bits that decide what is taken. Of an address: is there one, and how far from a multiple of 16? Of the seed
// and of what is in the workspace nothing; nor of the bytes between fields.
using Signature = std::array<std::uint64_t, sizeof(Call) / 8>;
Signature signature_of(Call call) {
  const auto reduce = [](auto*& address) {
    using Pointer = std::remove_reference_t<decltype(address)>;
    if (address) address = reinterpret_cast<Pointer>(16 | reinterpret_cast<std::uintptr_t>(address) % 16);
  };
  Args& f = call.forward;
  for (flashphases_input* t :
       {&f.q, &f.k, &f.v, &f.slopes, &f.bias, &f.bool_mask, &f.doc_q, &f.doc_k, &f.block_mask, &call.backward.dout})
    reduce(t->data);
  BackwardArgs& b = call.backward;
  for (flashphases_tensor* t : {&f.o, &f.o_lo, &b.dq, &b.dk, &b.dv, &b.dbias}) reduce(t->data);
  for (float** rows : {&f.lse, &f.m, &f.l, &b.dsinks}) reduce(*rows);
  for (const float** rows : {&f.sinks, &b.dlse}) reduce(*rows);
  for (const std::int32_t** lengths : {&f.cu_seqlens_q, &f.cu_seqlens_k, &f.seqused_q, &f.seqused_k}) reduce(*lengths);
  f.dropout_seed = 0, b.forward = nullptr;
  f.workspace_is_zero = b.workspace_is_zero = 0;
  Signature words;
  static_assert(sizeof words == sizeof call && offsetof(Args, dropout_seed) - offsetof(Args, dropout) == 8);
  std::memcpy(words.data(), &call, sizeof call);
  std::memset(reinterpret_cast<char*>(words.data()) + offsetof(Args, dropout) + 4, 0, 4);
  return words;
}

// Where a thread remembers such a call, among 64.
std::size_t place_of(const Signature& signature) {
  std::uint64_t sum = 0, factor = 0x9e3779b97f4a7c15u;
  for (const std::uint64_t word : signature) sum += word * factor, factor += 0x7f4a7c159e3779b8u;  // it stays odd
  return sum >> 58;
}

// The same as taken_on_gpu(), and at once where this thread has had it on this device.
const Taken& remembered(const Call& call, const Asked& asked, const Gpu& gpu) {
  struct Memory {
    int device = -1;
    Signature signature{};
    Taken taken{};
  };
  thread_local std::unique_ptr<std::array<Memory, 64>> memories = std::make_unique<std::array<Memory, 64>>();
  const Signature signature = signature_of(call);
  Memory& memory = (*memories)[place_of(signature)];
  if (memory.device != gpu.number || memory.signature != signature) {
    memory.device = -1;  // until it is known
    memory.taken = taken_on_gpu(asked, gpu);
    memory.signature = signature, memory.device = gpu.number;
  }
  return memory.taken;
}

// ---- A call ---------------------------------------------------------------------------------------------------------

// The caller's workspace, piece by piece; cleared where it must be 0.
Stream stream_of(const Asked& asked, const Taken& taken, const Launch& launch, const Gpu& gpu) {
  Stream stream{launch.stream, {}};
  if (taken.workspace_bytes == 0) return stream;
  if (launch.workspace_bytes < taken.workspace_bytes)
    refuse("workspace_bytes", launch.workspace_bytes, std::to_string(taken.workspace_bytes) + " or more",
           asked.problem.backward() ? "ask flashphases_backward_workspace" : "ask flashphases_workspace");
  check_pointer("workspace", launch.workspace);
  check_alignment("workspace", launch.workspace, asked.problem.backward() ? 256 : sizeof(unsigned));
  check_memory("workspace", launch.workspace, gpu);
  std::size_t begin = 0;
  for (int i = 0; i < taken.workspace.size(); begin = after(begin, taken.workspace[i++])) {
    void* const piece = static_cast<char*>(launch.workspace) + begin;
    stream.workspace[static_cast<std::size_t>(i)] = piece;
    if (taken.workspace[i].zeroed && !asked.workspace_is_zero)
      clear(piece, static_cast<std::size_t>(taken.workspace[i].count) * 4, launch.stream);
  }
  return stream;
}

// On the CPU or the simulator: where the host's memory is, and no workspace.
Taken call_on_host(const Asked& asked, const Phase& phase, Where where, bool launch) {
  const AnyProblem& p = asked.problem;
  check_call(asked, phase);
  each_array(p, [](const char* name, const void* data, std::size_t) { check_host_memory(name, data); });
  check_lengths(p);
  MachineOptions options;
  options.threads = p.options.threads;
  const Pass& pass = pass_of(phase, p.direction);
  if (launch)
    enter(phase, p, where, options);
  else if (pass.features.kernel)
    pass.on_stream(where, p, nullptr);
  return {&phase, {}, 0};
}

Taken call_on_simulator(const Asked& asked, Where where, bool launch) {
  if (!holds_simulator(where))
    refuse("machine", std::to_string(asked.machine) + " (" + name(where) + ")",
           "0 (GPU) or 1 (CPU): this library holds no simulator", "use libflashphases-simulated.so (docs/library.md)");
  const Phase& phase = wanted(asked, [where](const Features& can) { return is_held(can, where); });
  if (const Pass* pass = phase.pass(asked.problem.direction); pass && !is_held(pass->features, where))
    refuse("phase", phase.name, "one that this library holds for the simulator",
           "build it with -DFLASHPHASES_SIMULATED= for all");
  return call_on_host(asked, phase, where, launch);
}

// Checks everything; launches too if that is asked for, with a workspace that is large enough.
Taken call(const Call& call, const Launch* launch) {
  const Asked asked = asked_of(call);
  switch (asked.machine) {
    case FLASHPHASES_GPU:
      break;
    case FLASHPHASES_CPU:
      return call_on_host(asked, on_cpu(asked), Where::Sim, launch);
    case FLASHPHASES_SIM:
      return call_on_simulator(asked, Where::Sim, launch);
    case FLASHPHASES_CHECKED:
      return call_on_simulator(asked, Where::Checked, launch);
    default:
      refuse("machine", asked.machine, "0 (GPU), 1 (CPU), 2 (simulator) or 3 (checked simulator)",
             "see enum flashphases_machine");
  }
  const AnyProblem& p = asked.problem;
  const Gpu gpu = current_gpu();
  const Taken& taken = remembered(call, asked, gpu);
  each_array(p, [&](const char* name, const void* data, std::size_t) { check_memory(name, data, gpu); });
  if (launch) {
    const Stream stream = stream_of(asked, taken, *launch, gpu);
    pass_of(*taken.phase, p.direction).on_stream(Where::Gpu, p, &stream);
  }
  return taken;
}

// The three calls of a direction.
template <class A>
int workspace(const A* args, std::size_t* bytes) {
  return guarded([&] {
    check_pointer("bytes", bytes);
    *bytes = call(read_call(args), nullptr).workspace_bytes;
  });
}
template <class A>
int enqueue(const A* args, const Launch& launch) {
  return guarded([&] { call(read_call(args), &launch); });
}
template <class A>
int chosen_phase(const A* args, std::int32_t* number) {
  return guarded([&] {
    check_pointer("phase", number);
    const Phase* const taken = call(read_call(args), nullptr).phase;
    *number = taken == &definition::phase ? FLASHPHASES_DEFINITION : std::atoi(taken->name);
  });
}

// ---- What a phase can do --------------------------------------------------------------------------------------------

flashphases_pass described(const Pass* pass) {
  if (!pass) return {};
  constexpr std::pair<Demand, flashphases_can> names[] = {{Demand::Causal, FLASHPHASES_CAN_CAUSAL},
                                                          {Demand::Window, FLASHPHASES_CAN_WINDOW},
                                                          {Demand::Lse, FLASHPHASES_CAN_LSE},
                                                          {Demand::Kept, FLASHPHASES_CAN_KEEP},
                                                          {Demand::WideOutput, FLASHPHASES_CAN_WIDE_OUTPUT},
                                                          {Demand::FewerHeads, FLASHPHASES_CAN_HK},
                                                          {Demand::OtherDv, FLASHPHASES_CAN_DV},
                                                          {Demand::Lengths, FLASHPHASES_CAN_LENGTHS},
                                                          {Demand::Softcap, FLASHPHASES_CAN_SOFTCAP},
                                                          {Demand::Alibi, FLASHPHASES_CAN_SLOPES},
                                                          {Demand::Bias, FLASHPHASES_CAN_BIAS},
                                                          {Demand::BoolMask, FLASHPHASES_CAN_BOOL_MASK},
                                                          {Demand::Documents, FLASHPHASES_CAN_DOCUMENTS},
                                                          {Demand::BlockMask, FLASHPHASES_CAN_BLOCK_MASK},
                                                          {Demand::Sinks, FLASHPHASES_CAN_SINKS},
                                                          {Demand::Dropout, FLASHPHASES_CAN_DROPOUT},
                                                          {Demand::AnyStride, FLASHPHASES_CAN_ANY_STRIDE},
                                                          {Demand::Atomic, FLASHPHASES_CAN_ATOMIC},
                                                          {Demand::SpareMultiprocessors, FLASHPHASES_CAN_SPARE}};
  // All but ranks, which nobody can ask for here.
  static_assert(std::size(names) + 1 == std::size(demands::rows), "a demand without a name in flashphases.h");
  const Features& can = pass->features;
  flashphases_pass info{};
  for (const Type type : can.types) info.types |= 1u << static_cast<unsigned>(type);
  for (const auto& [demand, bit] : names)
    if (can.meets(demand)) info.can |= bit;
  info.largest_D = can.largest_D();
  if (can.kernel) {
    info.capability = can.capability.major * 10 + can.capability.minor;
    info.this_capability_alone = can.capability.exactly;
  }
  return info;
}

void describe(std::int32_t number, flashphases_phase* to) {
  const std::uint32_t size = read(to, "phase", "flashphases_phase").struct_size;
  const auto runs = [gpu = current_gpu()](const Features& can) { return runs_on(can, gpu); };
  const Phase& phase =
      number == FLASHPHASES_DEFINITION ? definition::phase : numbered(number, Direction::Forward, runs);
  flashphases_phase info{};
  info.struct_size = size, info.number = number;
  for (const Phase* other : all_phases())
    if (const int next = std::atoi(other->name);
        other->kernel() && next > number && (info.next == 0 || next < info.next))
      info.next = next;
  std::snprintf(info.name, sizeof info.name, "%s", phase.name);
  info.forward = described(phase.forward), info.backward = described(phase.backward);
  std::memcpy(to, &info, sizeof info);
}

}  // namespace
}  // namespace flash

extern "C" {

int flashphases_workspace(const flashphases_forward_args* args, size_t* bytes) {
  return flash::workspace(args, bytes);
}
int flashphases_forward(const flashphases_forward_args* args, void* workspace, size_t workspace_bytes, void* stream) {
  return flash::enqueue(args, {workspace, workspace_bytes, stream});
}
int flashphases_chosen_phase(const flashphases_forward_args* args, int32_t* phase) {
  return flash::chosen_phase(args, phase);
}

int flashphases_backward_workspace(const flashphases_backward_args* args, size_t* bytes) {
  return flash::workspace(args, bytes);
}
int flashphases_backward(const flashphases_backward_args* args, void* workspace, size_t workspace_bytes, void* stream) {
  return flash::enqueue(args, {workspace, workspace_bytes, stream});
}
int flashphases_backward_chosen_phase(const flashphases_backward_args* args, int32_t* phase) {
  return flash::chosen_phase(args, phase);
}

int flashphases_phase_info(int32_t number, flashphases_phase* phase) {
  return flash::guarded([&] { flash::describe(number, phase); });
}

const char* flashphases_error(void) {
  return flash::last_error.c_str();
}

const char* flashphases_version(void) {
  return FLASH_VERSION;
}
}
