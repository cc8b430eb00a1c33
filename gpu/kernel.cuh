// kernel.cuh: the one header that a kernel file includes. Under nvcc: CUDA and our CUDA machine; under g++: the
// simulator's dialect of CUDA. The build defines FLASH_MACHINE (on_sim, on_checked; nvcc gets on_gpu).
// Use: docs/simulator.md; a kernel file is built with flash_add_kernel(name file.cu) from cmake/kernels.cmake.
#pragma once

#if defined(__CUDACC__) && !defined(FLASH_PROGRAM)  // ./flash check defines both
#define FLASH_MACHINE on_gpu
#include "gpu/cuda.cuh"
#include "gpu/ptx.cuh"
#else
#ifndef FLASH_MACHINE
#error "compile kernel files through flash_add_kernel (cmake/kernels.cmake): it defines FLASH_MACHINE"
#endif
namespace flash::inline FLASH_MACHINE {}  // namespace flash::inline FLASH_MACHINE
#include "sim/machine.hpp"
// (machine.hpp before the dialect, which takes words such as `asm` away)
#include "sim/dialect/dialect.hpp"
#include "sim/dialect/launch.hpp"
#include "sim/dialect/ptx.hpp"
namespace flash::simt {
template <>
struct DeviceType<flash::half, FLASH_MACHINE::Machine::checks> {
  using type = FLASH_MACHINE::__half;
};
template <>
struct DeviceType<flash::bfloat16, FLASH_MACHINE::Machine::checks> {
  using type = FLASH_MACHINE::__nv_bfloat16;
};
}  // namespace flash::simt
namespace flash::inline FLASH_MACHINE {
template <class T>
using device_t = simt::device_t<T, Machine::checks>;  // the kernel's type for a host type
}  // namespace flash::inline FLASH_MACHINE
#endif
