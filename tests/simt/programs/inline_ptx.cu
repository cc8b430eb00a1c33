// inline_ptx.cu: inline assembly as kernels have it: a product of half matrices on the tensor cores by cp.async,
// ldmatrix and mma.sync, and common instructions, registers, predicates and a loop. Each figure against the host's own.
// ./flash check tests/simt/programs/inline_ptx.cu; nvcc -arch=sm_80 inline_ptx.cu. With an argument: the product does
// not wait for its copies.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

constexpr int kM = 32, kN = 16, kK = 64, kThreads = 64;

__device__ uint32_t address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ void copy(void* shared, const half* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(shared)), "l"(global), "r"(bytes));
}

// C = A B^T: A [kM, kK], B [kN, kK], C [kM, kN]. Two warps, each with 16 rows; rows of B from the 12th on are zeros.
__global__ void product(const half* A, const half* B, float* C, bool broken) {
  __shared__ __align__(16) half a[kM][kK + 8], b[kN][kK + 8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  for (int i = t; i < kM * kK / 8; i += kThreads) copy(&a[i / 8][i % 8 * 8], A + i * 8, 16);
  for (int i = t; i < kN * kK / 8; i += kThreads) copy(&b[i / 8][i % 8 * 8], B + i * 8, i / 8 < 12 ? 16 : 0);
  asm volatile("cp.async.commit_group;");
  if (!broken) asm volatile("cp.async.wait_group %0;" ::"n"(0));
  __syncthreads();

  float sum[2][4] = {};
  for (int k = 0; k < kK; k += 16) {
    uint32_t left[4], right[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"  //@ asynchronous copy
                 : "=r"(left[0]), "=r"(left[1]), "=r"(left[2]), "=r"(left[3])
                 : "r"(address(&a[warp * 16 + lane % 16][k + lane / 16 * 8])));
    for (int n = 0; n < 2; ++n) {
      // Only the first 16 lanes give rows; the second eight are 16 bytes further.
      const uint32_t row = lane < 16 ? address(&b[n * 8 + lane % 8][k]) + (lane / 8 ? 16 : 0) : 0;
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(right[0]), "=r"(right[1])
                   : "r"(row));
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, "  // D, and C
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sum[n][0]), "+f"(sum[n][1]), "+f"(sum[n][2]), "+f"(sum[n][3])
          : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    }
  }
  for (int n = 0; n < 2; ++n)
    for (int i = 0; i < 4; i += 2)
      asm volatile(
          "st.global.v2.f32 [%0], {%1, %2};" ::"l"(C + (warp * 16 + lane / 4 + i * 4) * kN + n * 8 + lane % 4 * 2),
          "f"(sum[n][i]), "f"(sum[n][i + 1])
          : "memory");
}

enum Word {
  lane_id,
  below,
  product_and_sum,
  shifted,
  shifted_sign,
  bytes,
  highest,
  ones,
  chosen,
  three,
  low,
  high,
  power,
  two_halfs,
  fourth,
  wraps,
  before,
  reversed,
  kWords
};

__global__ void words(const uint4* in, uint32_t* out, uint32_t* total) {
  __shared__ uint4 own[kThreads];
  const int t = threadIdx.x;
  const uint32_t x = in[t].x;
  uint32_t w[kWords];
  asm("mov.u32 %0, %%laneid;" : "=r"(w[lane_id]));
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(w[below]));
  asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(w[product_and_sum]) : "r"(x), "r"(2654435761u), "r"(t));
  asm("shl.b32 %0, %1, %2;" : "=r"(w[shifted]) : "r"(x), "r"(t));  // 0 from 32 on
  asm("shr.s32 %0, %1, %2;" : "=r"(w[shifted_sign]) : "r"(x), "r"(t));
  asm("prmt.b32 %0, %1, %2, 0x4192;" : "=r"(w[bytes]) : "r"(x), "r"(~x));
  asm("bfind.u32 %0, %1;" : "=r"(w[highest]) : "r"(t));
  asm("popc.b32 %0, %1;" : "=r"(w[ones]) : "r"(x));
  asm("{\n"
      "  .reg .pred p;\n"  // a comment
      "  setp.lt.s32 p, %1, 20;\n"
      "  selp.b32 %0, %1, 20, p;\n"
      "}"
      : "=r"(w[chosen])
      : "r"(t));
  w[three] = 0;
  asm("{ .reg .pred p; setp.eq.u32 p, %1, 3; @p mov.u32 %0, 33; @!p mov.u32 %0, %1; }" : "+r"(w[three]) : "r"(t));
  uint64_t both;
  asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(x), "r"(t));
  asm("mov.b64 {%0, %1}, %2;" : "=r"(w[low]), "=r"(w[high]) : "l"(both));
  float f;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(static_cast<float>(t % 8)));
  w[power] = static_cast<uint32_t>(f);
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w[two_halfs]) : "f"(2.0f), "f"(1.0f));
  // Through shared memory: the thread's own four words, and the last of them back.
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address(&own[t])), "r"(x), "r"(in[t].y), "r"(in[t].z),
               "r"(in[t].w)
               : "memory");
  asm volatile("ld.shared.u32 %0, [%1 + 12];" : "=r"(w[fourth]) : "r"(address(&own[t])));
  // 3 + 3 + … until it is t at least.
  asm("{\n\t.reg .pred p;\n\tmov.u32 %0, 0;\nNEXT:\n\tadd.u32 %0, %0, 3;\n\tsetp.lt.u32 p, %0, %1;\n\t@p bra NEXT;\n\t}"
      : "=&r"(w[wraps])
      : "r"(t));
  asm("sub.u32 %0, %1, 1;" : "=r"(w[before]) : "r"(t));
  asm("brev.b32 %0, %1;" : "=r"(w[reversed]) : "r"(x));
  asm volatile("red.global.add.u32 [%0], %1;" ::"l"(total), "r"(t) : "memory");
  for (int i = 0; i < kWords; ++i) out[t * kWords + i] = w[i];
}

int wrong = 0;
void expect(const char* what, int t, uint32_t got, uint32_t wanted) {
  if (got != wanted) std::printf("%s of %d: %08x, not %08x\n", what, t, got, wanted), ++wrong;
}

uint32_t random_word(uint32_t i) {
  i = (i ^ i >> 16) * 0x7feb352du;
  i = (i ^ i >> 15) * 0x846ca68bu;
  return i ^ i >> 16;
}

int main(int argc, char**) {
  static half a[kM * kK], b[kN * kK];
  static float c[kM * kN];
  for (int i = 0; i < kM * kK; ++i) a[i] = __float2half(static_cast<float>(random_word(i) % 17) - 8);
  for (int i = 0; i < kN * kK; ++i) b[i] = __float2half(static_cast<float>(random_word(i + 10000) % 9) - 4);
  half *A, *B;
  float* C;
  cudaMalloc(&A, sizeof a), cudaMalloc(&B, sizeof b), cudaMalloc(&C, sizeof c);
  cudaMemcpy(A, a, sizeof a, cudaMemcpyHostToDevice);
  cudaMemcpy(B, b, sizeof b, cudaMemcpyHostToDevice);
  product<<<1, kThreads>>>(A, B, C, argc > 1);
  if (cudaMemcpy(c, C, sizeof c, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      float sum = 0;  // integers: exact
      for (int k = 0; k < kK; ++k) sum += __half2float(a[i * kK + k]) * (j < 12 ? __half2float(b[j * kK + k]) : 0);
      if (!(c[i * kN + j] == sum)) std::printf("C[%d][%d]: %g, not %g\n", i, j, c[i * kN + j], sum), ++wrong;
    }

  static uint4 in[kThreads];
  static uint32_t out[kThreads][kWords];
  uint32_t sum = 0, *total, *words_out;
  uint4* words_in;
  for (int t = 0; t < kThreads; ++t)
    in[t] = {random_word(t), random_word(t + 100), random_word(t + 200), random_word(t + 300)};
  cudaMalloc(&words_in, sizeof in), cudaMalloc(&words_out, sizeof out), cudaMalloc(&total, sizeof sum);
  cudaMemcpy(words_in, in, sizeof in, cudaMemcpyHostToDevice);
  cudaMemset(total, 0, sizeof sum);
  words<<<1, kThreads>>>(words_in, words_out, total);
  if (cudaMemcpy(out, words_out, sizeof out, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost);
  expect("sum", 0, sum, kThreads * (kThreads - 1) / 2);
  for (int t = 0; t < kThreads; ++t) {
    const uint32_t x = in[t].x, *w = out[t];
    uint32_t ones_of_x = 0, reversed_x = 0, highest_bit = ~0u;
    for (int i = 0; i < 32; ++i) {
      ones_of_x += x >> i & 1, reversed_x |= (x >> i & 1) << (31 - i);
      if (t >> i & 1) highest_bit = i;
    }
    // Selector 0x4192, from the lowest byte: byte 2, byte 1 as its sign, byte 1, byte 0 of ~x.
    const uint32_t one = x >> 8 & 0xff, two = x >> 16 & 0xff;
    expect("laneid", t, w[lane_id], t % 32);
    expect("lanemask_lt", t, w[below], (1u << t % 32) - 1);
    expect("mad", t, w[product_and_sum], x * 2654435761u + t);
    expect("shl", t, w[shifted], t < 32 ? x << t : 0);
    expect("shr", t, w[shifted_sign], static_cast<uint32_t>(static_cast<int32_t>(x) >> (t < 32 ? t : 31)));
    expect("prmt", t, w[bytes], two | (one >> 7 ? 0xff00u : 0) | one << 16 | (~x & 0xff) << 24);
    expect("bfind", t, w[highest], highest_bit);
    expect("popc", t, w[ones], ones_of_x);
    expect("selp", t, w[chosen], t < 20 ? t : 20);
    expect("@p", t, w[three], t == 3 ? 33 : t);
    expect("low", t, w[low], x);
    expect("high", t, w[high], t);
    expect("ex2", t, w[power], 1u << t % 8);
    expect("cvt", t, w[two_halfs], 0x40003c00u);
    expect("ld", t, w[fourth], in[t].w);
    expect("bra", t, w[wraps], t < 3 ? 3 : (t + 2) / 3 * 3);
    expect("sub", t, w[before], t - 1u);
    expect("brev", t, w[reversed], reversed_x);
  }
  std::printf("inline_ptx: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
