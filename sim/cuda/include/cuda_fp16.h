// cuda_fp16.h: in place of CUDA's header of this name, for programs that ./flash check compiles:
// __half and __nv_bfloat16 are among the words that cuda_runtime.h brings.
// Use: #include <cuda_fp16.h>, as with nvcc.
#pragma once
#include <cuda_runtime.h>
