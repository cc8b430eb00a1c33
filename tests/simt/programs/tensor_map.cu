// tensor_map.cu: products of half matrices whose tiles TMA brings through tensor maps, by inline assembly: a ring of
// two stages with two mbarriers each, a warp that copies and four that multiply. The last rows lie outside the tensor.
// ./flash check tests/simt/programs/tensor_map.cu; nvcc -arch=sm_90 tensor_map.cu. With an argument: the warps that
// multiply give a stage back before they have read it.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

constexpr int kBatch = 2, kM = 50, kN = 32, kK = 256;  // of the problem
constexpr int kRows = 64, kDepth = 64, kStages = 2;    // of A's tile; that of B has kN rows
constexpr int kBytesOfA = kRows * kDepth * 2, kBytes = kBytesOfA + kN * kDepth * 2;

__device__ uint32_t address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ void wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred done;\n\t"
      "AGAIN:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra AGAIN;\n\t"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Says for a warp that it has read a stage.
__device__ void give_back(uint64_t* empty, int lane) {
  __syncwarp();
  if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(empty)) : "memory");
}
// Where the 16 bytes `piece` of a row of 128 bytes lie in a tile with the 128-byte swizzle.
__device__ uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * 128 + (piece ^ row % 8) * 16);
}

// C = A B^T in each batch: A [kBatch, kM, kK] by a map of three dimensions, B [kBatch kN, kK] by one of two,
// C [kBatch, kM, kN]. A block has a batch.
__global__ void product(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B, float* C,
                        bool broken) {
  __shared__ __align__(1024) uint8_t tiles[kStages][kBytes];
  __shared__ uint64_t full[kStages], empty[kStages];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int batch = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&full[s])), "r"(1));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&empty[s])), "r"(4));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (warp == 4) {
    int chosen = 0;
    asm volatile("{ .reg .pred p; elect.sync _|p, %1; @p mov.s32 %0, 1; }" : "+r"(chosen) : "r"(0xffffffffu));
    if (!chosen) return;
    for (int i = 0; i < kK / kDepth; ++i) {
      const int stage = i % kStages;
      const uint32_t barrier = address(&full[stage]), tile = address(tiles[stage]);
      wait(address(&empty[stage]), i / kStages % 2 ^ 1);  // at first they are empty
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kBytes) : "memory");
      asm volatile(
          "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
          "[%5];" ::"r"(tile),
          "l"(&A), "r"(i * kDepth), "r"(0), "r"(batch), "r"(barrier)
          : "memory");
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
          "[%4];" ::"r"(tile + kBytesOfA),
          "l"(&B), "r"(i * kDepth), "r"(batch * kN), "r"(barrier)
          : "memory");
    }
    return;
  }

  float sum[kN / 8][4] = {};
  for (int i = 0; i < kK / kDepth; ++i) {
    const int stage = i % kStages;
    const uint32_t a = address(tiles[stage]), b = a + kBytesOfA;
    wait(address(&full[stage]), i / kStages % 2);
    if (broken) give_back(&empty[stage], lane);
    for (int k = 0; k < kDepth / 8; k += 2) {
      uint32_t left[4], right[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"  //@ race
                   : "=r"(left[0]), "=r"(left[1]), "=r"(left[2]), "=r"(left[3])
                   : "r"(a + swizzled(warp * 16 + lane % 16, k + lane / 16)));
      for (int n = 0; n < kN / 8; n += 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(right[0]), "=r"(right[1]), "=r"(right[2]), "=r"(right[3])
                     : "r"(b + swizzled((n + lane / 16) * 8 + lane % 8, k + lane / 8 % 2)));
        for (int half = 0; half < 2; ++half)
          asm volatile(
              "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
              "{%0, %1, %2, %3};"
              : "+f"(sum[n + half][0]), "+f"(sum[n + half][1]), "+f"(sum[n + half][2]), "+f"(sum[n + half][3])
              : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[2 * half]), "r"(right[2 * half + 1]));
      }
    }
    if (!broken) give_back(&empty[stage], lane);
  }
  for (int n = 0; n < kN / 8; ++n)
    for (int i = 0; i < 4; ++i) {
      const int row = warp * 16 + lane / 4 + i / 2 * 8;
      if (row < kM) C[(batch * kM + row) * kN + n * 8 + lane % 4 * 2 + i % 2] = sum[n][i];
    }
}

// A map of 16-bit elements with rows of kK; boxes are one tile wide and `rows` high.
CUtensorMap map_of(half* data, int rank, cuuint64_t height, cuuint32_t rows) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found) !=
      cudaSuccess)
    std::printf("no cuTensorMapEncodeTiled\n"), std::exit(1);
  CUtensorMap map;
  const cuuint64_t sizes[] = {kK, height, kBatch}, strides[] = {kK * sizeof(half), height * kK * sizeof(half)};
  const cuuint32_t box[] = {kDepth, rows, 1}, steps[] = {1, 1, 1};
  const CUresult made = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, static_cast<cuuint32_t>(rank), data, sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (made != CUDA_SUCCESS) std::printf("no tensor map: %d\n", static_cast<int>(made)), std::exit(1);
  return map;
}

int main(int argc, char**) {
  static half a[kBatch * kM * kK], b[kBatch * kN * kK];
  static float c[kBatch * kM * kN];
  for (int i = 0; i < kBatch * kM * kK; ++i) a[i] = __float2half(static_cast<float>(i * 7919 % 1009 % 17) - 8);
  for (int i = 0; i < kBatch * kN * kK; ++i) b[i] = __float2half(static_cast<float>(i * 6007 % 997 % 9) - 4);
  half *A, *B;
  float* C;
  cudaMalloc(&A, sizeof a), cudaMalloc(&B, sizeof b), cudaMalloc(&C, sizeof c);
  cudaMemcpy(A, a, sizeof a, cudaMemcpyHostToDevice);
  cudaMemcpy(B, b, sizeof b, cudaMemcpyHostToDevice);
  product<<<kBatch, 160>>>(map_of(A, 3, kM, kRows), map_of(B, 2, kBatch * kN, kN), C, argc > 1);
  if (cudaMemcpy(c, C, sizeof c, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  int wrong = 0;
  for (int i = 0; i < kBatch * kM; ++i)
    for (int j = 0; j < kN; ++j) {
      float sum = 0;  // integers: exact
      for (int k = 0; k < kK; ++k) sum += __half2float(a[i * kK + k]) * __half2float(b[(i / kM * kN + j) * kK + k]);
      if (!(c[i * kN + j] == sum)) std::printf("C[%d][%d]: %g, not %g\n", i, j, c[i * kN + j], sum), ++wrong;
    }
  std::printf("tensor_map: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
