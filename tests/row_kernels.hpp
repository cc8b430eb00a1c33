// row_kernels.hpp: what the forward kernels with one thread per row (05 to 09) must count, derived from the mask alone.
// Bytes per array, FLOPs, exps, barriers, bank conflicts, shared memory and blocks, as integers.
// Use: TEST_CASE_TEMPLATE("counters equal formulas", T, float, half, bfloat16) { check_row_kernel<T>(); }
#pragma once
#include "tests/promises.hpp"

namespace flash::test {

template <class T>
void check_row_kernel();

}  // namespace flash::test
