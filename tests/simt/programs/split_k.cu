// split_k.cu: a dot product per row, each split over several blocks; the block that draws the last ticket adds the
// parts. One kernel instead of two, and the order of the additions does not hang on who is last.
// ./flash check tests/simt/programs/split_k.cu; nvcc -arch=native split_k.cu. With an argument: the fence is missing.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kThreads = 64, kMostRows = 8;
__device__ unsigned tickets[kMostRows];

__global__ void dot(const float* a, const float* b, float* parts, float* out, int n, bool broken) {
  __shared__ float s[kThreads];
  __shared__ bool last;
  const int t = threadIdx.x, row = blockIdx.y, splits = gridDim.x;
  float sum = 0;
  for (int i = blockIdx.x * kThreads + t; i < n; i += kThreads * splits)
    sum = fmaf(a[row * n + i], b[row * n + i], sum);
  s[t] = sum;
  __syncthreads();
  for (int stride = kThreads / 2; stride > 0; stride /= 2) {
    if (t < stride) s[t] += s[t + stride];
    __syncthreads();
  }
  if (t == 0) {
    parts[row * splits + blockIdx.x] = s[0];
    if (!broken) __threadfence();  // the part is written before the ticket is drawn
    last = atomicInc(&tickets[row], splits - 1) == splits - 1;
  }
  __syncthreads();
  if (!last || t != 0) return;
  __threadfence();
  sum = 0;
  for (int i = 0; i < splits; ++i) sum += parts[row * splits + i];  //@ race
  out[row] = sum;
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int rows = kMostRows, n = 1000, splits = 4;
  std::vector<float> a(rows * n), b(rows * n), out(rows), expected(rows, 0.0f);
  for (int i = 0; i < rows * n; ++i) {
    a[i] = static_cast<float>(i % 5), b[i] = static_cast<float>(i % 3 - 1);
    expected[i / n] += a[i] * b[i];
  }
  float *d_a, *d_b, *d_parts, *d_out;
  CUDA(cudaMalloc(&d_a, a.size() * sizeof(float)));
  CUDA(cudaMalloc(&d_b, b.size() * sizeof(float)));
  CUDA(cudaMalloc(&d_parts, rows * splits * sizeof(float)));
  CUDA(cudaMalloc(&d_out, rows * sizeof(float)));
  CUDA(cudaMemcpy(d_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(d_b, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice));
  int wrong = 0;
  for (int again = 0; again < 2; ++again) {  // the tickets are back at 0
    dot<<<dim3(splits, rows), kThreads>>>(d_a, d_b, d_parts, d_out, n, broken);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(out.data(), d_out, rows * sizeof(float), cudaMemcpyDeviceToHost));
    wrong += out != expected;
  }
  for (float* array : {d_a, d_b, d_parts, d_out}) CUDA(cudaFree(array));
  std::printf("split_k: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
