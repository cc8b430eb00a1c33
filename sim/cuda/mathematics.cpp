// mathematics.cpp: the C library's functions as a program's kernels call them, counted: 2 FLOPs per fused multiply-add,
// one exp per exponential. The linker puts them in the place of the library's (--wrap); the host's calls go through.
// Use: ./flash check links checked programs so; kernel files of gpu/kernel.cuh count in the dialect.
#include "sim/core/block.hpp"

// --wrap=f gives calls of f to __wrap_f and makes __real_f the function itself.
#define FLASH_COUNTED(Result, name, what, n, parameters, arguments) \
  extern "C" Result __real_##name parameters;                       \
  extern "C" Result __wrap_##name parameters;                       \
  Result __wrap_##name parameters {                                 \
    if (flash::simt::active_worker) flash::simt::tally.what += n;   \
    return __real_##name arguments;                                 \
  }

FLASH_COUNTED(float, fmaf, flops, 2, (float a, float b, float c), (a, b, c))
FLASH_COUNTED(double, fma, flops, 2, (double a, double b, double c), (a, b, c))
FLASH_COUNTED(float, expf, exps, 1, (float x), (x))
FLASH_COUNTED(double, exp, exps, 1, (double x), (x))
FLASH_COUNTED(float, exp2f, exps, 1, (float x), (x))
FLASH_COUNTED(double, exp2, exps, 1, (double x), (x))
FLASH_COUNTED(float, exp10f, exps, 1, (float x), (x))
