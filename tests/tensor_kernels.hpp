// tensor_kernels.hpp: the counters of the kernels on tensor cores with 64 x 64 tiles (phases 10 to 12), as formulas.
// Use: check_tensor_kernel<half>(loads) in the test of such a phase, linked with tensor_kernels.cpp.
#pragma once
#include <functional>

#include "tests/promises.hpp"

namespace flash::test {

// What the fragments of one K/V tile take out of shared memory, all warps together; and once per block by ldmatrix.
struct SharedLoads {
  std::int64_t requests, wavefronts, once = 0;
};

// Ragged lengths, each mask, D = 64 and 128. `loads` is told D. `asynchronous`: the kernel copies by cp.async, the next
// tile while this one is multiplied.
template <class T>
void check_tensor_kernel(const std::function<SharedLoads(std::int64_t)>& loads, bool asynchronous = false);

// Bits and counters of a kernel that copies asynchronously, whenever the bytes of a copy arrive.
template <class T>
void check_completions();

}  // namespace flash::test
