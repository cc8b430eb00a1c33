// cuda_runtime_api.h: in place of CUDA's header of this name, for programs that ./flash check compiles:
// all of it is in cuda_runtime.h here.
// Use: #include <cuda_runtime_api.h>, as with nvcc.
#pragma once
#include <cuda_runtime.h>
