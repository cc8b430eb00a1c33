// flashphases.cpp: see flashphases.h. Checks the arguments as the phases do, chooses the phase, enqueues its kernels.
// No exception leaves a call: it becomes a status and a line of text. Without FLASH_HAVE_CUDA only the CPU computes.
// Use: libflashphases.so, which CMakeLists.txt builds and installs.
#include "phases/library/flashphases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#ifdef FLASH_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "phases/definition/phase.hpp"
#include "phases/interface/operands.hpp"
#include "phases/interface/validate.hpp"
#include "phases/library/automatic.hpp"

static_assert(FLASHPHASES_VERSION_MAJOR == FLASH_VERSION_MAJOR && FLASHPHASES_VERSION_MINOR == FLASH_VERSION_MINOR,
              "flashphases.h and CMakeLists.txt say different versions");

namespace flash {
namespace {

using Args = flashphases_forward_args;
constexpr std::uint32_t first_size = 208;  // of the struct without later fields
static_assert(offsetof(Args, machine) == first_size);

struct NoGpu : Error {
  using Error::Error;
};

thread_local char last_error[1024] = "";

int failed(flashphases_status status, const char* text) {
  std::snprintf(last_error, sizeof last_error, "%s", text);
  return status;
}

template <class F>
int guarded(const F& call) noexcept {
  try {
    call();
    return FLASHPHASES_OK;
  } catch (const NoGpu& e) {
    return failed(FLASHPHASES_NO_GPU, e.what());
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

// The caller's struct in this version's layout; what an earlier one lacks is 0. A later version's is taken if what it
// knows more is 0.
Args read(const Args* args) {
  check_pointer("args", args);
  const std::uint32_t size = args->struct_size;
  if (size != first_size && size < sizeof(Args))
    refuse("struct_size", size, std::to_string(first_size) + ", or " + std::to_string(sizeof(Args)) + " or more",
           "set it to sizeof(flashphases_forward_args)");
  const auto* bytes = reinterpret_cast<const unsigned char*>(args);
  for (std::uint32_t i = sizeof(Args); i < size; ++i)
    if (bytes[i])
      refuse("byte " + std::to_string(i) + " of the arguments", static_cast<int>(bytes[i]),
             std::string("0 for version ") + FLASH_VERSION, "use a newer libflashphases");
  Args whole{};
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
  if (a.has_scale != 0 && a.has_scale != 1)
    refuse("has_scale", a.has_scale, "0 (1/sqrt(D)) or 1 (scale)", "set it to 1 to give a scale");
  if (a.has_scale == 0 && a.scale != 0)
    refuse("scale", a.scale, "0 where has_scale is 0", "set has_scale to 1 to use it");
  if (a.has_scale) options.scale = a.scale;
  options.block_q = a.block_q;
  options.block_k = a.block_k;
  options.softcap = a.softcap;
  options.dropout = {a.dropout, a.dropout_seed};
  options.threads = a.threads;
  return options;
}

AnyView view_of(const flashphases_tensor& t, std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) {
  return {t.data, {B, H, S, D}, {t.stride_b, t.stride_h, t.stride_s, 1}};
}

// An array that may be left out. Where its stride is 0, all share what is there, so that this axis is 1.
AnyView optional_view(const char* name, const flashphases_tensor& t, std::array<std::int64_t, 4> shape) {
  if (!t.data && (t.stride_b || t.stride_h || t.stride_s))
    refuse(std::string(name) + "'s data", "null", "a pointer beside its strides", "pass it, or set them to 0");
  if (!t.data) return {};
  const std::array<std::int64_t, 3> strides = {t.stride_b, t.stride_h, t.stride_s};
  AnyView view{t.data, shape, dense_strides(shape)};
  for (std::size_t i = 0; i < 3; ++i) {
    if (strides[i] == 0) view.shape[i] = 1;
    if (strides[i] != 0) view.stride[i] = strides[i];
  }
  return view;
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
  p.lse = row_view(a.lse, p.q);
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

// The phase of this number; of two (25 and 25m) the first that the current device runs.
const Phase& numbered(std::int32_t number) {
  std::string numbers;
  const Phase* named = nullptr;
  int last = 0;
  for (const Phase* phase : all_phases()) {
    if (!phase->kernel()) continue;
    const int mine = std::atoi(phase->name);
    const auto runs = [](const Phase& phase) { return available(phase.forward->features, Where::Gpu); };
    if (mine == number && (!named || (!runs(*named) && runs(*phase)))) named = phase;
    if (mine != last) numbers += " " + std::to_string(last = mine);
  }
  if (named) return *named;
  refuse("phase", number, "0 (the fastest measured) or one of" + numbers, "pass 0");
}

// Of an array that has elements.
void check_alignment(const char* name, const void* data, std::size_t element) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address % element != 0)
    refuse(std::string(name) + "'s address modulo " + std::to_string(element), address % element, "0",
           "align it to its elements");
}

// Can kernels of the current device reach it?
void check_memory([[maybe_unused]] const char* name, [[maybe_unused]] const void* data) {
#ifdef FLASH_HAVE_CUDA
  int device = 0, reads_host_memory = 0;
  cudaPointerAttributes memory{};
  if (cudaGetDevice(&device) != cudaSuccess || cudaPointerGetAttributes(&memory, data) != cudaSuccess)
    throw MachineError(std::string(name) + "'s memory: " + cudaGetErrorString(cudaGetLastError()));
  if (memory.type == cudaMemoryTypeDevice && memory.device != device)
    refuse(std::string(name) + "'s device", memory.device, std::to_string(device) + ", the current one",
           "call cudaSetDevice, or move the tensor");
  if (memory.type == cudaMemoryTypeUnregistered) {
    cudaDeviceGetAttribute(&reads_host_memory, cudaDevAttrPageableMemoryAccess, device);
    if (!reads_host_memory)
      refuse(std::string(name) + "'s memory", "the host's", "device memory", "copy it with cudaMemcpy");
  }
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

void require_gpu(const Phase& phase) {
  if (!was_built(Where::Gpu))
    throw NoGpu("the library is built without CUDA; expected one with it; configure it with -DFLASH_CUDA=ON");
  if (!available(Where::Gpu)) throw NoGpu("the GPU is missing; expected a CUDA device; look at nvidia-smi");
  try {
    require(phase.name, phase.forward->features, Where::Gpu);
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
  std::size_t workspace_bytes;  // that it needs
};

// Where a piece begins in the caller's workspace, which is one block: each at a multiple of 256 bytes.
std::size_t after(std::size_t begin, const Piece& piece) {
  return (begin + static_cast<std::size_t>(piece.count) * 4 + 255) / 256 * 256;
}

// The definition on the CPU: no phase but this one, no workspace, no stream.
const Phase& on_cpu(const Args& a) {
  if (a.phase != 0) refuse("phase", a.phase, "0 on the CPU, where the definition is the only one", "pass 0");
  return definition::phase;
}

// Checks everything; launches too if that is asked for, with a workspace that is large enough.
Taken call(const Args* given, const Launch* launch) {
  const Args a = read(given);
  const AnyProblem p = problem_of(a);
  if (a.machine != FLASHPHASES_GPU && a.machine != FLASHPHASES_CPU)
    refuse("machine", a.machine, "0 (GPU) or 1 (CPU)", "see enum flashphases_machine");
  const bool cpu = a.machine == FLASHPHASES_CPU;
  const Phase& phase = cpu ? on_cpu(a) : a.phase ? numbered(a.phase) : *choose_phase(p, Where::Gpu).phase;
  validate(p, phase);
  const auto each_array = [&](const auto& check) {
    for (const Operand& operand : operands)
      if (is_given(operand, p) && (p.*operand.view).elements() > 0)
        check(operand.name, (p.*operand.view).data,
              static_cast<std::size_t>(bytes_of(type_of_elements(operand.element, p))));
  };
  each_array([](const char* name, const void* data, std::size_t element) { check_alignment(name, data, element); });
  if (cpu) {
    each_array([](const char* name, const void* data, std::size_t) { check_host_memory(name, data); });
    check_lengths(p);
    if (launch) enter(phase, p);
    return {&phase, 0};
  }
  require_gpu(phase);
  each_array([](const char* name, const void* data, std::size_t) { check_memory(name, data); });

  const Pass& pass = *phase.forward;
  const Workspace workspace = pass.features.workspace(p);
  std::size_t bytes = 0;  // the last piece needs no room behind it
  for (const Piece& piece : workspace)
    bytes = &piece == workspace.end() - 1 ? bytes + static_cast<std::size_t>(piece.count) * 4 : after(bytes, piece);
  pass.on_stream(Where::Gpu, p, nullptr);
  if (!launch) return {&phase, bytes};
  Stream stream{launch->stream, {}};
  if (bytes > 0) {
    if (launch->workspace_bytes < bytes)
      refuse("workspace_bytes", launch->workspace_bytes, std::to_string(bytes) + " or more",
             "ask flashphases_workspace");
    check_pointer("workspace", launch->workspace);
    check_alignment("workspace", launch->workspace, sizeof(unsigned));
    check_memory("workspace", launch->workspace);
    std::size_t begin = 0;
    for (int i = 0; i < workspace.size(); begin = after(begin, workspace[i++]))
      stream.workspace[static_cast<std::size_t>(i)] = static_cast<char*>(launch->workspace) + begin;
  }
  pass.on_stream(Where::Gpu, p, &stream);
  return {&phase, bytes};
}

}  // namespace
}  // namespace flash

extern "C" {

int flashphases_workspace(const flashphases_forward_args* args, size_t* bytes) {
  return flash::guarded([&] {
    flash::check_pointer("bytes", bytes);
    *bytes = flash::call(args, nullptr).workspace_bytes;
  });
}

int flashphases_forward(const flashphases_forward_args* args, void* workspace, size_t workspace_bytes, void* stream) {
  const flash::Launch launch{workspace, workspace_bytes, stream};
  return flash::guarded([&] { flash::call(args, &launch); });
}

int flashphases_chosen_phase(const flashphases_forward_args* args, int32_t* phase) {
  return flash::guarded([&] {
    flash::check_pointer("phase", phase);
    const flash::Phase* const taken = flash::call(args, nullptr).phase;
    *phase = taken == &flash::definition::phase ? FLASHPHASES_DEFINITION : std::atoi(taken->name);
  });
}

const char* flashphases_error(void) {
  return flash::last_error;
}

const char* flashphases_version(void) {
  return FLASH_VERSION;
}
}
