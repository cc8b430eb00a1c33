// cuda_pipeline.h: in place of CUDA's header of this name, for programs that ./flash check compiles: the functions of
// cuda_pipeline_primitives.h. CUDA's class nvcuda::experimental::pipeline is not here.
// Use: #include <cuda_pipeline.h>, as with nvcc.
#pragma once
#include <cuda_pipeline_primitives.h>
