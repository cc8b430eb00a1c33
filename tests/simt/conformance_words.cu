// conformance_words.cu: functions beside those of conformance.cu: arithmetic on the halves and bytes of a word, halfs
// with a rounding of one's own, and what the C library lacks of mathematics. Not yet recorded on a GPU:
// conformance_test.cpp compares them with results that the host finds in another way.
// Use: run_words_conformance(options); h200.sh records it with -DFLASH_RECORD=run_words_conformance.
#include "tests/simt/conformance.cuh"
#include "tests/simt/conformance_words.hpp"
#if !defined(__CUDACC__)
#include "sim/dialect/dialect_half_more.hpp"
#endif

namespace flash::inline FLASH_MACHINE {

// ---- packed -------------------------------------------------------------------------------------------------------

// The functions of two words, one after the other, in the order of FLASH_PACKED_NAMES.
#define FLASH_PAIR_OF(name) out[at++] = __##name##2(a, b), out[at++] = __##name##4(a, b);
__global__ void packed(unsigned* out /*[pairs, functions]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned a = packed_operand(2 * i), b = packed_operand(2 * i + 1);
  unsigned at = i * kPackedResults;
  FLASH_PACKED_NAMES(FLASH_PAIR_OF)
  out[at++] = __vabs2(a), out[at++] = __vabs4(a), out[at++] = __vabsss2(a), out[at++] = __vabsss4(a);
  out[at++] = __vneg2(a), out[at++] = __vneg4(a), out[at++] = __vnegss2(a), out[at++] = __vnegss4(a);
  const int s = static_cast<int>(a), t = static_cast<int>(b);
  out[at++] = static_cast<unsigned>(__dp2a_lo(s, t, 7)), out[at++] = static_cast<unsigned>(__dp2a_hi(s, t, 7));
  out[at++] = __dp2a_lo(a, b, 7u), out[at++] = __dp2a_hi(a, b, 7u);
}

// ---- halfs with a rounding of one's own -----------------------------------------------------------------------------

// Floats around a half and between it and its neighbour, and all that lies far from them.
__global__ void rounded_halfs(unsigned* out /*[numbers, 6]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = __uint_as_float(rounded_operand(i));
  unsigned* const to = out + 6 * i;
  to[0] = __half_as_ushort(__float2half_rz(x)), to[1] = __half_as_ushort(__float2half_ru(x));
  to[2] = __half_as_ushort(__float2half_rd(x)), to[3] = __bfloat16_as_ushort(__float2bfloat16_rz(x));
  to[4] = __bfloat16_as_ushort(__float2bfloat16_ru(x)), to[5] = __bfloat16_as_ushort(__float2bfloat16_rd(x));
}

// ---- mathematics --------------------------------------------------------------------------------------------------

__global__ void mathematics(int function, const float* in /*[256]*/, float* out /*[256]*/) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = in[i];
  switch (function) {
    case 0:
      out[i] = rcbrtf(x);
      break;
    case 1:
      out[i] = sinpif(x);
      break;
    case 2:
      out[i] = cospif(x);
      break;
    case 3:
      out[i] = norm3df(x, 2 * x, -x);
      break;
    case 4:
      out[i] = rnorm4df(x, 2 * x, -x, 1);
      break;
    case 5:
      out[i] = rhypotf(x, 3);
      break;
    case 6:
      out[i] = erfinvf(x);
      break;
    case 7:
      out[i] = erfcinvf(x);
      break;
    case 8:
      out[i] = erfcxf(x);
      break;
    case 9:
      out[i] = normcdff(x);
      break;
    default:
      out[i] = normcdfinvf(x);
      break;
  }
}

std::vector<Family> run_words_conformance(const MachineOptions& options) {
  Machine m(options);
  std::vector<Family> all{
      collect<unsigned>(m, "packed", kPackedPairs * kPackedResults, dim3(kPackedPairs / 256), dim3(256), packed),
      collect<unsigned>(m, "rounded_halfs", kRoundedNumbers * 6, dim3(kRoundedNumbers / 256), dim3(256),
                        rounded_halfs)};
  int number = 0;
  for (const MathematicsFamily& of : kMathematics) {
    float inputs[256];
    for (int i = 0; i < 256; ++i) inputs[i] = mathematics_operand(of, i);
    const Array<float> in = m.upload("inputs", inputs, 256);
    const float* pointer = in.data();
    all.push_back(collect<float>(m, of.name, 256, dim3(4), dim3(64), mathematics, number++, pointer));
    all.back().max_ulp = of.max_ulp;
  }
  return all;
}

}  // namespace flash::inline FLASH_MACHINE
