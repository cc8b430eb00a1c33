// cuda_fp16.h: in place of CUDA's header of this name, for programs that ./flash check compiles: __half is among the words
// that cuda_runtime.h brings; here are its rarer functions.
// Use: #include <cuda_fp16.h>, as with nvcc.
#pragma once
#include <cuda_runtime.h>

#include "sim/dialect/dialect_half_more.hpp"
