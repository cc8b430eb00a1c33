// flashphases.cpp: see flashphases.h. Checks the arguments as the phases do, chooses the phase, enqueues its kernels.
// No exception leaves a call: it becomes a status and a line of text. Without FLASH_HAVE_CUDA only checks remain.
// Use: libflashphases.so, which CMakeLists.txt builds and installs.
#include "phases/library/flashphases.h"

#include <cstdio>
#include <cstdlib>
#include <new>

#ifdef FLASH_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "phases/interface/operands.hpp"
#include "phases/interface/validate.hpp"
#include "phases/library/automatic.hpp"

static_assert(FLASHPHASES_VERSION_MAJOR == FLASH_VERSION_MAJOR && FLASHPHASES_VERSION_MINOR == FLASH_VERSION_MINOR,
              "flashphases.h and CMakeLists.txt say different versions");

namespace flash {
namespace {

using Args = flashphases_forward_args;
constexpr std::uint32_t first_size = 208;  // of the struct in version 0.1
static_assert(sizeof(Args) == first_size);

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

// The caller's struct in this version's layout. A later version's is taken if what it knows more is 0.
Args read(const Args* args) {
  check_pointer("args", args);
  const std::uint32_t size = args->struct_size;
  if (size < first_size)
    refuse("struct_size", size, std::to_string(first_size) + " or more", "set it to sizeof(flashphases_forward_args)");
  const auto* bytes = reinterpret_cast<const unsigned char*>(args);
  for (std::uint32_t i = sizeof(Args); i < size; ++i)
    if (bytes[i])
      refuse("byte " + std::to_string(i) + " of the arguments", static_cast<int>(bytes[i]),
             std::string("0 for version ") + FLASH_VERSION, "use a newer libflashphases");
  return *args;
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
    default:
      refuse("mask", a.mask, "0 (none), 1 (top-left) or 2 (bottom-right)", "see enum flashphases_mask");
  }
  if (a.has_scale != 0 && a.has_scale != 1)
    refuse("has_scale", a.has_scale, "0 (1/sqrt(D)) or 1 (scale)", "set it to 1 to give a scale");
  if (a.has_scale == 0 && a.scale != 0)
    refuse("scale", a.scale, "0 where has_scale is 0", "set has_scale to 1 to use it");
  if (a.has_scale) options.scale = a.scale;
  options.block_q = a.block_q;
  options.block_k = a.block_k;
  return options;
}

AnyView view_of(const flashphases_tensor& t, const Args& a, std::int64_t S) {
  return {t.data, {a.B, a.H, S, a.D}, {t.stride_b, t.stride_h, t.stride_s, 1}};
}

AnyProblem problem_of(const Args& a) {
  AnyProblem p;
  p.type = p.out = type_of_args(a);
  p.options = options_of(a);
  p.q = view_of(a.q, a, a.Sq), p.k = view_of(a.k, a, a.Sk), p.v = view_of(a.v, a, a.Sk), p.o = view_of(a.o, a, a.Sq);
  p.lse = row_view(a.lse, p.q);
  return p;
}

// The phase with this number.
const Phase& numbered(std::int32_t number) {
  std::string numbers;
  for (const Phase* phase : all_phases()) {
    if (!phase->kernel()) continue;
    const int mine = std::atoi(phase->name);
    if (mine == number) return *phase;
    numbers += " " + std::to_string(mine);
  }
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

// Checks everything; launches too if that is asked for, with a workspace that is large enough.
Taken call(const Args* given, const Launch* launch) {
  const Args a = read(given);
  const AnyProblem p = problem_of(a);
  const Phase& phase = a.phase ? numbered(a.phase) : *choose_phase(p, Where::Gpu).phase;
  validate(p, phase);
  const auto each_array = [&](const auto& check) {
    for (const Operand& operand : operands)
      if (is_given(operand, p) && (p.*operand.view).elements() > 0)
        check(operand.name, (p.*operand.view).data,
              static_cast<std::size_t>(bytes_of(type_of_elements(operand.element, p))));
  };
  each_array([](const char* name, const void* data, std::size_t element) { check_alignment(name, data, element); });
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
    *phase = std::atoi(flash::call(args, nullptr).phase->name);
  });
}

const char* flashphases_error(void) {
  return flash::last_error;
}

const char* flashphases_version(void) {
  return FLASH_VERSION;
}
}
