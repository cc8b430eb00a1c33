// maximum.cuh: the maximum of three integers, for floats that are not negative: words of phase 13 and its last steps.
// Use: if (moderate) grow_positive(top, s); else grow(top, s);
#pragma once
#include "phases/10-tensor-cores/rows.cuh"

namespace flash::phase13::inline FLASH_MACHINE {

// #region maximum-of-three: positive floats as integers
// As `grow`, where m is positive: then the bits of a float are ordered as integers (a smaller one of either sign
// changes nothing), and there is a maximum of three integers.
template <int N>
__device__ void grow_positive(float (&m)[2], const float (&s)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    float& x = m[row_of(i)];
    x = __int_as_float(__vimax3_s32(__float_as_int(x), __float_as_int(s[i]), __float_as_int(s[i + 1])));
  }
}
// #endregion

}  // namespace flash::phase13::inline FLASH_MACHINE
