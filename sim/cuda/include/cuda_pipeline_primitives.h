// cuda_pipeline_primitives.h: in place of CUDA's header of this name, for programs that ./flash check compiles:
// asynchronous copies from global to shared memory. Findings use PTX's words: cp.async, its groups and their wait.
// Use: #include <cuda_pipeline.h>, as with nvcc; not here: __pipeline_arrive_on.
#pragma once
#include <cuda_runtime.h>

// Of 4, 8 or 16 bytes; the last `zfill` of them become zeros and are not read.
__device__ inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes, size_t zfill = 0,
                                               FLASH_SITE) {
  flash::simt::cp_async(shared, global, static_cast<unsigned>(bytes), static_cast<unsigned>(bytes - zfill), site);
}
__device__ inline void __pipeline_commit() {
  flash::simt::cp_async_commit();
}
__device__ inline void __pipeline_wait_prior(size_t groups, FLASH_SITE) {
  flash::simt::cp_async_wait(static_cast<unsigned>(groups), site);
}
