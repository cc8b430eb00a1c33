// mma_types.cu: products on the tensor cores by inline assembly: bytes with sums of int, which wrap, and halfs with
// sums of half. Each element against the host's own.
// ./flash check tests/simt/programs/mma_types.cu; nvcc -arch=sm_80 mma_types.cu. With an argument: the block does not
// wait for the rows that its other warp stores.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

constexpr int kM = 32, kN = 16, kK = 64, kThreads = 64;

__device__ uint32_t address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// C += A B^T: A [kM, kK], B [kN, kK], C [kM, kN]. Two warps, each with 16 rows of C; each stores half of A and of B.
__global__ void product_of_bytes(const int8_t* A, const int8_t* B, int* C, bool broken) {
  __shared__ __align__(16) int8_t a[kM][kK + 16], b[kN][kK + 16];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  for (int i = t; i < kM * kK / 16; i += kThreads)
    *reinterpret_cast<uint4*>(&a[i / 4][i % 4 * 16]) = reinterpret_cast<const uint4*>(A)[i];
  for (int i = t; i < kN * kK / 16; i += kThreads)
    *reinterpret_cast<uint4*>(&b[i / 4][i % 4 * 16]) = reinterpret_cast<const uint4*>(B)[i];
  if (!broken) __syncthreads();

  for (int n = 0; n < kN; n += 8) {
    int* const c = C + (warp * 16 + lane / 4) * kN + n + lane % 4 * 2;
    int sum[4] = {c[0], c[1], c[8 * kN], c[8 * kN + 1]};
    for (int k = 0; k < kK; k += 32) {
      uint32_t left[4], right[2];  // a matrix of 8 x 8 halfs is one of 8 x 16 bytes
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(left[0]), "=r"(left[1]), "=r"(left[2]), "=r"(left[3])
                   : "r"(address(&a[warp * 16 + lane % 16][k + lane / 16 * 16])));
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"  //@ race
                   : "=r"(right[0]), "=r"(right[1])
                   : "r"(address(&b[n + lane % 8][k + lane / 8 % 2 * 16])));
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
          : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    }
    c[0] = sum[0], c[1] = sum[1], c[8 * kN] = sum[2], c[8 * kN + 1] = sum[3];
  }
}

// C += A B^T of one warp: A [16, kK], B [8, kK], C [16, 8]; a register holds two elements of a row.
__global__ void product_of_halfs(const half* A, const half* B, half* C) {
  const int row = threadIdx.x / 4, pair = threadIdx.x % 4;
  const auto* a = reinterpret_cast<const uint32_t*>(A) + row * kK / 2 + pair;
  const auto* b = reinterpret_cast<const uint32_t*>(B) + row * kK / 2 + pair;
  auto* c = reinterpret_cast<uint32_t*>(C) + row * 4 + pair;
  uint32_t sum[2] = {c[0], c[32]};
  for (int k = 0; k < kK / 2; k += 8)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(sum[0]), "+r"(sum[1])
                 : "r"(a[k]), "r"(a[k + 8 * kK / 2]), "r"(a[k + 4]), "r"(a[k + 8 * kK / 2 + 4]), "r"(b[k]),
                   "r"(b[k + 4]));
  c[0] = sum[0], c[32] = sum[1];
}

uint32_t random_word(uint32_t i) {
  i = (i ^ i >> 16) * 0x7feb352du;
  i = (i ^ i >> 15) * 0x846ca68bu;
  return i ^ i >> 16;
}

template <class T, int kCount>
T* on_device(const T (&numbers)[kCount]) {
  T* copy;
  cudaMalloc(&copy, sizeof numbers);
  cudaMemcpy(copy, numbers, sizeof numbers, cudaMemcpyHostToDevice);
  return copy;
}

int main(int argc, char**) {
  int wrong = 0;
  static int8_t a[kM * kK], b[kN * kK];
  static int c[kM * kN], got[kM * kN];
  for (int i = 0; i < kM * kK; ++i) a[i] = i < kK ? -128 : static_cast<int8_t>(random_word(i));
  for (int i = 0; i < kN * kK; ++i) b[i] = i < kK ? -128 : static_cast<int8_t>(random_word(i + 10000));
  for (int i = 0; i < kM * kN; ++i) c[i] = static_cast<int>(i == 0 ? 0x7fffffff : random_word(i + 20000));
  int* const C = on_device(c);
  product_of_bytes<<<1, kThreads>>>(on_device(a), on_device(b), C, argc > 1);
  if (cudaMemcpy(got, C, sizeof got, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      uint32_t sum = static_cast<uint32_t>(c[i * kN + j]);
      for (int k = 0; k < kK; ++k) sum += static_cast<uint32_t>(a[i * kK + k] * b[j * kK + k]);
      if (static_cast<uint32_t>(got[i * kN + j]) != sum)
        std::printf("bytes, C[%d][%d]: %d, not %d\n", i, j, got[i * kN + j], static_cast<int>(sum)), ++wrong;
    }

  static half left[16 * kK], right[8 * kK], start[16 * 8], sums[16 * 8];  // integers, whose sums are exact
  for (int i = 0; i < 16 * kK; ++i) left[i] = __float2half(static_cast<float>(random_word(i) % 9) - 4);
  for (int i = 0; i < 8 * kK; ++i) right[i] = __float2half(static_cast<float>(random_word(i + 10000) % 7) - 3);
  for (int i = 0; i < 16 * 8; ++i) start[i] = __float2half(static_cast<float>(random_word(i + 20000) % 101) - 50);
  half* const S = on_device(start);
  product_of_halfs<<<1, 32>>>(on_device(left), on_device(right), S);
  if (cudaMemcpy(sums, S, sizeof sums, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = __half2float(start[i * 8 + j]);
      for (int k = 0; k < kK; ++k) sum += __half2float(left[i * kK + k]) * __half2float(right[j * kK + k]);
      if (!(__half2float(sums[i * 8 + j]) == sum))
        std::printf("halfs, C[%d][%d]: %g, not %g\n", i, j, __half2float(sums[i * 8 + j]), sum), ++wrong;
    }
  std::printf("mma_types: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
