// cuda.h: in place of CUDA's header of this name, for programs that ./flash check compiles:
// of the driver's interface there is nothing here but tensor maps, and what the run-time's header brings.
// Use: #include <cuda.h>, as with nvcc.
#pragma once
#include <cuda_runtime.h>

#include "sim/cuda/tensor_maps.hpp"
