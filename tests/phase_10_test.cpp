// phase_10_test.cpp: proof of phase 10, tensor cores: all that phases and kernels promise (promises.hpp), and its
// counters from formulas: tensor FLOPs of whole tiles, and the bank conflicts of rows that all begin in one bank.
// ./flash test 10
#include <doctest/doctest.h>

#include "phases/08-lse/phase.hpp"
#include "phases/10-tensor-cores/phase.hpp"
#include "tests/tensor_kernels.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase10::phase;
}

// Of a fragment's load the lanes g = 0 … 7 read row g: D = 64 and 128 are whole rows of banks, so the 8 rows lie in the
// same banks. A and B of S: 4 words a row, 8 wavefronts where 1 would do. B of PV, two loads of 16 bits a register:
// rows 2t, t = 0 … 3, 4 words each: 4 wavefronts.
TEST_CASE_TEMPLATE("counters equal formulas", T, half, bfloat16) {
  check_tensor_kernel<T>([](std::int64_t D) {
    const std::int64_t a = 4 * 4 * D / 16, k = 4 * 2 * 8 * D / 16, v = 4 * 4 * 4 * D / 8;  // requests of the 4 warps
    return SharedLoads{a + k + v, 8 * (a + k) + 4 * v};
  });
}
