// cuda_runtime.h: in place of CUDA's header of this name, for programs that ./flash check compiles: the words of kernels
// (sim/dialect), launches, and the host's interface (sim/cuda/api.hpp), all at global scope, as in CUDA.
// Use: #include <cuda_runtime.h>, or not at all: it is included before the program's first line, as nvcc does.
#pragma once
// By these of its guards programs (NVIDIA's helper_cuda.h) ask whether CUDA's run-time is there.
#define __CUDA_RUNTIME_H__
#define __DRIVER_TYPES_H__
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmath>
#include <cstdlib>

#include "sim/cuda/cxx17.hpp"

#include "sim/cuda/api.hpp"
#include "sim/cuda/launch_api.hpp"
#include "sim/cuda/inline_ptx.hpp"
#include "sim/dialect/dialect.hpp"

#if defined(FLASH_CHECKED)
extern "C" bool flash_program_is_checked __attribute__((weak));
bool flash_program_is_checked = true;
#else
extern "C" bool flash_program_is_checked __attribute__((weak));
bool flash_program_is_checked = false;
#endif
