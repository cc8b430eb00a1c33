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

#include "phases/interface/phase.hpp"
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

template <class T>
View<T> view_of(const flashphases_tensor& t, const Args& a, std::int64_t S) {
  return {static_cast<T*>(t.data), {a.B, a.H, S, a.D}, {t.stride_b, t.stride_h, t.stride_s, 1}};
}

template <class T>
Problem<T> problem_of(const Args& a, const Options& options) {
  Problem<T> p;
  p.q = view_of<const T>(a.q, a, a.Sq);
  p.k = view_of<const T>(a.k, a, a.Sk);
  p.v = view_of<const T>(a.v, a, a.Sk);
  p.o = view_of<T>(a.o, a, a.Sq);
  p.lse = a.lse;
  p.options = options;
  return p;
}

// The phase with this number.
const Phase& numbered(std::int32_t number) {
  std::string numbers;
  for (const Phase* phase : all_phases()) {
    if (!phase->features.kernel) continue;
    const int mine = std::atoi(phase->features.phase);
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

void require_gpu(const Features& can) {
  if (!was_built(Where::Gpu))
    throw NoGpu("the library is built without CUDA; expected one with it; configure it with -DFLASH_CUDA=ON");
  if (!available(Where::Gpu)) throw NoGpu("the GPU is missing; expected a CUDA device; look at nvidia-smi");
  try {
    require(can, Where::Gpu);
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

// The bytes of workspace that are needed. Launches if `launch` is not null, with enough of them.
template <class T>
std::size_t enter(const Phase& phase, const Args& a, const Options& options, const Launch* launch) {
  const Entries& entries = phase.entries[static_cast<std::size_t>(Where::Gpu)];
  const StreamEntry<T> entry = std::get<StreamEntry<T>>(entries.on_stream);
  const Problem<T> p = problem_of<T>(a, options);
  if (!launch) return entry(p, nullptr, nullptr);
  const auto workspace = [&](std::size_t needed) {
    if (launch->workspace_bytes < needed)
      refuse("workspace_bytes", launch->workspace_bytes, std::to_string(needed) + " or more",
             "ask flashphases_workspace");
    check_pointer("workspace", launch->workspace);
    check_alignment("workspace", launch->workspace, sizeof(unsigned));
    check_memory("workspace", launch->workspace);
    return launch->workspace;
  };
  return entry(p, workspace, launch->stream);
}

// Checks everything; launches too if that is asked for.
Taken call(const Args* given, const Launch* launch) {
  const Args a = read(given);
  const Type type = type_of_args(a);
  const Options options = options_of(a);
  const auto q = view_of<const void>(a.q, a, a.Sq), k = view_of<const void>(a.k, a, a.Sk),
             v = view_of<const void>(a.v, a, a.Sk), o = view_of<const void>(a.o, a, a.Sq);
  const std::size_t element = type == Type::Float32 ? 4 : 2;
  const Sizes sizes{a.B, a.H, a.Sq, a.Sk, a.D, static_cast<std::int64_t>(element), a.lse != nullptr, options};
  const bool by_tma = !tma_obstacle(q, k, v, o, type);
  const Phase& phase = a.phase ? numbered(a.phase) : *choose_phase(sizes, type, false, Where::Gpu, by_tma).phase;
  validate(q, k, v, o, type, a.lse != nullptr, options, phase.features);
  struct Array {
    const char* name;
    const void* data;  // null: there is none, or it has no elements
    std::size_t element;
  };
  const auto array = [&](const char* name, const AnyView& view) {
    return Array{name, view.elements() > 0 ? view.data : nullptr, element};
  };
  const Array arrays[] = {array("Q", q),
                          array("K", k),
                          array("V", v),
                          array("O", o),
                          {"LSE", q.elements() > 0 ? a.lse : nullptr, sizeof(float)}};
  for (const auto& [name, data, size] : arrays) check_alignment(name, data, size);
  require_gpu(phase.features);
  for (const auto& [name, data, size] : arrays)
    if (data) check_memory(name, data);
  const auto enter_as = type == Type::Float32 ? enter<float> : type == Type::Float16 ? enter<half> : enter<bfloat16>;
  return {&phase, enter_as(phase, a, options, launch)};
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
    *phase = std::atoi(flash::call(args, nullptr).phase->features.phase);
  });
}

const char* flashphases_error(void) {
  return flash::last_error;
}

const char* flashphases_version(void) {
  return FLASH_VERSION;
}
}
