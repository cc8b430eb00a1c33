// cudaTypedefs.h: in place of CUDA's header of this name, for programs that ./flash check compiles: of the types of the
// driver's functions the one that makes tensor maps. Use: #include <cudaTypedefs.h>, as with nvcc.
#pragma once
#include <cuda.h>

typedef decltype(&cuTensorMapEncodeTiled) PFN_cuTensorMapEncodeTiled;
typedef PFN_cuTensorMapEncodeTiled PFN_cuTensorMapEncodeTiled_v12000;
