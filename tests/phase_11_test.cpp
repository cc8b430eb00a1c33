// phase_11_test.cpp: proof of phase 11, swizzle: all that phases and kernels promise (promises.hpp), and its
// counters from formulas: a quarter of phase 10's requests and not one bank conflict.
// ./flash test 11
#include <doctest/doctest.h>

#include "phases/10-tensor-cores/phase.hpp"
#include "phases/11-swizzle/phase.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase11::phase;
}

// ldmatrix: 4 wavefronts for 4 matrices, which is the fewest. Nothing waits for a bank.
TEST_CASE_TEMPLATE("counters equal formulas", T, half, bfloat16) {
  check_tensor_kernel<T>([](std::int64_t D) {
    const std::int64_t a = 4 * D / 16, k = 4 * 4 * D / 16, v = 4 * 4 * D / 16;  // requests of the 4 warps
    return SharedLoads{a + k + v, 4 * (a + k + v)};
  });
}
