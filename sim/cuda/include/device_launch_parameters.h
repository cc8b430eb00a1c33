// device_launch_parameters.h: in place of CUDA's header of this name, for programs that ./flash check compiles:
// all of it is in cuda_runtime.h here.
// Use: #include <device_launch_parameters.h>, as with nvcc.
#pragma once
#include <cuda_runtime.h>
