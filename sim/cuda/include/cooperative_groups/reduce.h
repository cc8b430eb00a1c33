// reduce.h: in place of CUDA's cooperative_groups/reduce.h, for programs that ./flash check compiles:
// all of it is in cooperative_groups.h here.
// Use: #include <cooperative_groups/reduce.h>, as with nvcc.
#pragma once
#include <cooperative_groups.h>
