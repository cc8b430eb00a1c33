// wmma.cu: C = A B by nvcuda::wmma: each warp makes a tile of 16 x 16, half and bfloat16, with both layouts of each
// matrix, with float and half sums; A's tile goes through shared memory.
// ./flash check tests/simt/programs/wmma.cu; nvcc -arch=native wmma.cu (sm_80 or newer). With an argument: no barrier
// stands between the stores of A's tile and the loads of its fragments.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

namespace wmma = nvcuda::wmma;
constexpr int kN = 32;  // all matrices are [kN,kN]; a block of 4 warps

template <class Layout>
constexpr bool by_rows = std::is_same<Layout, wmma::row_major>::value;

// a and b by rows or by columns, as the layouts say; c by rows. Small whole numbers: every sum is exact.
template <class T, class LayoutA, class LayoutB, class Sum>
__global__ void multiply(const T* a, const T* b, Sum* c, bool broken) {
  __shared__ __align__(32) T tile[kN * kN];
  for (int i = threadIdx.x; i < kN * kN; i += blockDim.x) tile[i] = a[i];
  if (!broken) __syncthreads();
  const int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 16;
  const bool a_rows = by_rows<LayoutA>, b_rows = by_rows<LayoutB>;
  wmma::fragment<wmma::accumulator, 16, 16, 16, Sum> sum, one;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < kN; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, LayoutA> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, LayoutB> right;
    wmma::load_matrix_sync(left, tile + (a_rows ? row * kN + k : k * kN + row), kN);  //@ race
    wmma::load_matrix_sync(right, b + (b_rows ? k * kN + column : column * kN + k), kN);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::fill_fragment(one, 1.0f);
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + one.x[i];
  wmma::store_matrix_sync(c + row * kN + column, sum, kN, wmma::mem_row_major);
  wmma::load_matrix_sync(one, c + row * kN + column, kN, wmma::mem_row_major);
  wmma::store_matrix_sync(c + row * kN + column, one, kN, wmma::mem_row_major);
}

bool wrong = false;

template <class T, class LayoutA, class LayoutB, class Sum>
void check(bool broken) {
  const bool a_rows = by_rows<LayoutA>, b_rows = by_rows<LayoutB>;
  std::vector<T> a(kN * kN), b(kN * kN);
  std::vector<Sum> c(kN * kN);
  for (int i = 0; i < kN * kN; ++i) a[i] = T(float(i * 7 % 5 - 2)), b[i] = T(float(i * 11 % 7 - 3));
  T *d_a, *d_b;
  Sum* d_c;
  CUDA(cudaMalloc(&d_a, sizeof(T) * kN * kN));
  CUDA(cudaMalloc(&d_b, sizeof(T) * kN * kN));
  CUDA(cudaMalloc(&d_c, sizeof(Sum) * kN * kN));
  CUDA(cudaMemcpy(d_a, a.data(), sizeof(T) * kN * kN, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(d_b, b.data(), sizeof(T) * kN * kN, cudaMemcpyHostToDevice));
  multiply<T, LayoutA, LayoutB, Sum><<<1, 128>>>(d_a, d_b, d_c, broken);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(c.data(), d_c, sizeof(Sum) * kN * kN, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kN; ++j) {
      float sum = 1;
      for (int k = 0; k < kN; ++k)
        sum += float(a[a_rows ? i * kN + k : k * kN + i]) * float(b[b_rows ? k * kN + j : j * kN + k]);
      wrong |= float(c[i * kN + j]) != sum;
    }
  CUDA(cudaFree(d_a));
  CUDA(cudaFree(d_b));
  CUDA(cudaFree(d_c));
}

int main(int argc, char**) {
  using wmma::col_major;
  using wmma::row_major;
  check<__half, row_major, col_major, float>(argc > 1);
  check<__half, col_major, row_major, float>(false);
  check<__half, row_major, row_major, __half>(false);
  check<__nv_bfloat16, row_major, row_major, float>(false);
  check<__nv_bfloat16, col_major, col_major, float>(false);
  std::printf("wmma: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
