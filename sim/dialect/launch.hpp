// launch.hpp: CUDA's host side as far as a launch needs it: what <<<>>> becomes, streams, attributes, errors.
// The arguments are converted to the kernel's parameter types, as CUDA does; each thread gets its own copies.
// Use: through "gpu/kernel.cuh": kernel<<<grid, block, sizeof(Smem)>>>(a.data(), n); it runs on the current machine.
#pragma once
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "sim/core/layouts.hpp"
#include "sim/core/simt.hpp"
#if !defined(FLASH_PROGRAM)
#include "sim/core/variables.hpp"
#include "sim/machine.hpp"
#endif

namespace flash::inline FLASH_MACHINE {

#if !defined(FLASH_PROGRAM)  // there sim/cuda/api.hpp has all of this
// A launch or call that CUDA would answer with an error throws flash::Error here, and a launch returns when it is done:
// what is left to these is success.
enum cudaError_t { cudaSuccess = 0 };
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
inline const char* cudaGetErrorString(cudaError_t) {
  return "no error";
}

// All launches run in the order of the program, whatever their stream.
using cudaStream_t = struct CUstream_st*;

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

// A launch that gives more than 48 KiB of shared memory needs this before it, once per machine.
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int bytes) {
  Machine::current("cudaFuncSetAttribute").allow_shared_memory(reinterpret_cast<const void*>(kernel), bytes);
  return cudaSuccess;
}

namespace cuda {
// From `host` to the variable, or from the variable to `into_host`.
inline cudaError_t copy_symbol(void* variable, const void* host, void* into_host, std::size_t bytes, std::size_t offset,
                               simt::Site) {
  if (host)
    simt::copy_to_variable(variable, offset, host, bytes);
  else
    simt::copy_from_variable(into_host, variable, offset, bytes);
  return cudaSuccess;
}
}  // namespace cuda
#include "sim/dialect/symbols.hpp"

#endif

// ---- launches ----------------------------------------------------------------------------------------------------

// Where launches go: to the current machine, or, in a program of its own (sim/cuda), to the program's only one.
#if defined(FLASH_PROGRAM)
struct Target {
  simt::Site site;
  cudaStream_t stream = nullptr;
  bool cooperative = false;
  simt::dim3 cluster{};  // of cudaLaunchKernelEx
  void run(simt::Launch& spec) const {
    spec.cooperative = cooperative, spec.cluster = cluster;
    cuda::launch(spec, stream, site);
  }
  static Target current(const char*, cudaStream_t stream, simt::Site site) { return {site, stream}; }
};
#else
struct Target {
  simt::MachineCore& machine;
  void run(simt::Launch& spec) const { machine.run(spec); }
  static Target current(const char* kernel, cudaStream_t, simt::Site) {
    return {Machine::current("the launch of ", kernel)};
  }
};
#endif

// A parameter as a thread gets it. Of a class with a copy constructor or destructor of its own the host makes the one
// copy, and each thread gets its bits and runs neither, as on a GPU: C++ passes such a class by its address.
template <class T>
inline constexpr bool passed_by_address =
    !std::is_trivially_copy_constructible_v<T> || !std::is_trivially_move_constructible_v<T> ||
    !std::is_trivially_destructible_v<T>;
template <class T, bool kByAddress = passed_by_address<T>>
struct Parameter {
  using Passed = T;
  const T& value;
  Passed pass() { return value; }
};
template <class T>
struct Parameter<T, true> {
  using Passed = T&;
  explicit Parameter(const T& value) { __builtin_memcpy(bits, &value, sizeof(T)); }
  Passed pass() { return *reinterpret_cast<T*>(bits); }
  alignas(T) std::byte bits[sizeof(T)];
};

// All that is known before the arguments are.
struct Launching {
  Target target;
  const char* kernel_name;
  simt::dim3 grid, block;
  std::size_t shared_bytes;

  // Lets each thread of the grid make the call call(arguments...). `kernel`: the function's address, if it has one.
  template <class Call, class... Arguments>
  void run(const void* kernel, Call call, Arguments... arguments) const {
    static_assert(std::is_pointer_v<Call> || !(passed_by_address<Arguments> || ...),
                  "an argument has a copy constructor: write the kernel's template arguments at the launch");
    (simt::note_layout<Arguments>(), ...);
    struct Bound {
      Call call;
      std::tuple<Arguments...> arguments;
    } bound{call, {arguments...}};
    simt::Launch spec{};
    spec.invoke = [](const void* data) {
      const Bound& b = *static_cast<const Bound*>(data);
      if constexpr ((passed_by_address<Arguments> || ...))
        std::apply(
            [&](const Arguments&... a) {
              reinterpret_cast<void (*)(typename Parameter<Arguments>::Passed...)>(b.call)(
                  Parameter<Arguments>{a}.pass()...);
            },
            b.arguments);
      else
        std::apply(b.call, b.arguments);
    };
    spec.arguments = &bound, spec.argument_bytes = sizeof bound;
    spec.kernel = kernel, spec.kernel_name = kernel_name;
    spec.grid = grid, spec.block = block, spec.shared_bytes = shared_bytes;
    target.run(spec);
  }
};

// A launch that names one function: its parameters are known, so that 0, NULL or {x, y} do as arguments.
template <class Call, class... Parameters>
struct LaunchOfOne {
  Launching launching;
  Call call;
  void (*kernel)(Parameters...);

  void operator()(Parameters... arguments) const {
    launching.run(reinterpret_cast<const void*>(kernel), kernel, arguments...);
  }
  // The kernel's default arguments do for the rest.
  template <class... Arguments, class = std::enable_if_t<(sizeof...(Arguments) < sizeof...(Parameters))>>
  void operator()(Arguments... arguments) const {
    launching.run(reinterpret_cast<const void*>(kernel), call, arguments...);
  }
};

// A launch of an overloaded kernel or of a template whose arguments are deduced: the call says which one it is.
template <class Call>
struct LaunchOfSome {
  Launching launching;
  Call call;

  template <class... Arguments>
  void operator()(Arguments... arguments) const {
    launching.run(nullptr, call, arguments...);
  }
};

// use(k) is the address of k, and does not compile if k may be several functions.
struct TheFunction {
  template <class... Parameters>
  auto operator()(void (*kernel)(Parameters...)) const {
    return kernel;
  }
};

// What stands between <<< and >>>.
struct Configuration {
  simt::dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
  simt::Site site;

  template <class Use, class Call>
  auto kernel(const char* name, Use use, Call call) const {
    const Launching launching{Target::current(name, stream, site), name, grid, block, shared_bytes};
    if constexpr (std::is_invocable_v<Use, TheFunction>)
      return launch_of(launching, call, use(TheFunction{}));
    else
      return LaunchOfSome<Call>{launching, call};
  }

 private:
  template <class Call, class... Parameters>
  static LaunchOfOne<Call, Parameters...> launch_of(const Launching& launching, Call call,
                                                    void (*kernel)(Parameters...)) {
    return {launching, call, kernel};
  }
};

// k<T><<<grid, block, bytes, stream>>>(x) comes out of launches.cpp as
//   on_this_machine(grid, block, bytes, stream)
//       .kernel("k<T>", [&](auto use) -> decltype(use(k<T>)) { return use(k<T>); }, [&](auto... a) { k<T>(a...); })(x)
inline Configuration on_this_machine(simt::dim3 grid, simt::dim3 block, std::size_t shared_bytes = 0,
                                     cudaStream_t stream = nullptr, simt::Site site = simt::Site::current()) {
  return {grid, block, shared_bytes, stream, site};
}

#if !defined(FLASH_PROGRAM)
// ---- launch<S>(machine, kernel, grid, block, arguments...): the same on a machine that is named, with one struct ----

// Without shared memory: launch(m, kernel, ...).
struct NoShared {};

template <class S = NoShared, class... Parameters, class... Arguments>
void launch(Machine& machine, void (*kernel)(Parameters...), simt::dim3 grid, simt::dim3 block,
            Arguments... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "launch: one argument per kernel parameter");
  const auto* address = reinterpret_cast<const void*>(kernel);
  std::size_t bytes = 0;
  if constexpr (!std::is_same_v<S, NoShared>) {
    bytes = sizeof(S);
    machine.allow_shared_memory(address, bytes);
  }
  Launching{Target{machine}, "", grid, block, bytes}.run(address, kernel, static_cast<Parameters>(arguments)...);
}

#endif

}  // namespace flash::inline FLASH_MACHINE
