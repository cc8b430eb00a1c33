// launch.hpp: launch() for the simulator: packs the arguments, names the kernel and hands both to the machine.
// The arguments are converted to the kernel's parameter types, as <<< >>> does; each thread gets its own copies.
// Use: through "gpu/kernel.cuh": launch<Smem>(m, kernel<float>, grid, block, a.data(), n).
#pragma once
#include <tuple>
#include <type_traits>

#include "sim/core/simt.hpp"
#include "sim/machine.hpp"

namespace flash::inline FLASH_MACHINE {

// Without shared memory: launch(m, kernel, ...).
struct NoShared {};

// "... [with S = flash::on_sim::Smem<float>]": findings name the struct.
template <class S>
const char* shared_struct_name() {
  return __PRETTY_FUNCTION__;
}

template <class S = NoShared, class... Parameters, class... Arguments>
void launch(Machine& machine, void (*kernel)(Parameters...), simt::dim3 grid, simt::dim3 block,
            Arguments... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "launch: one argument per kernel parameter");
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "kernel parameters are copied bit by bit");
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  } call{kernel, {static_cast<Parameters>(arguments)...}};
  simt::Launch spec{};
  spec.invoke = [](const void* data) {
    const Call& c = *static_cast<const Call*>(data);
    std::apply(c.kernel, c.arguments);
  };
  spec.arguments = &call, spec.argument_bytes = sizeof call;
  spec.kernel = reinterpret_cast<const void*>(kernel);
  spec.grid = grid, spec.block = block;
  if constexpr (!std::is_same_v<S, NoShared>) {
    spec.shared_bytes = sizeof(S);
    spec.shared_name = shared_struct_name<S>();
  }
  machine.run(spec);
}

}  // namespace flash::inline FLASH_MACHINE
