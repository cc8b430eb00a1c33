// axpy.cu: y = a x + y, four elements per load, the rest one by one; arrays that begin at any element. The vector part
// begins where both arrays are aligned to 16 bytes.
// ./flash check tests/simt/programs/axpy.cu; nvcc -arch=native axpy.cu. With an argument: alignment is not looked at.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

__device__ bool aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(float4) == 0;
}

__global__ void axpy(float a, const float* x, float* y, int n, bool broken) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  const int vectors = broken || (aligned(x) && aligned(y)) ? n / 4 : 0;
  for (int i = thread; i < vectors; i += threads) {
    const float4 u = reinterpret_cast<const float4*>(x)[i];  //@ misaligned
    float4 v = reinterpret_cast<float4*>(y)[i];
    v.x = fmaf(a, u.x, v.x), v.y = fmaf(a, u.y, v.y), v.z = fmaf(a, u.z, v.z), v.w = fmaf(a, u.w, v.w);
    reinterpret_cast<float4*>(y)[i] = v;
  }
  for (int i = 4 * vectors + thread; i < n; i += threads) y[i] = fmaf(a, x[i], y[i]);
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int n = 1001;
  std::vector<float> x(n), y(n), out(n);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i % 9), y[i] = static_cast<float>(i % 5);
  float *d_x, *d_y;
  CUDA(cudaMalloc(&d_x, n * sizeof(float)));
  CUDA(cudaMalloc(&d_y, n * sizeof(float)));
  CUDA(cudaMemcpy(d_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  int wrong = 0;
  for (int offset = 0; offset < 2; ++offset) {
    CUDA(cudaMemcpy(d_y, y.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    axpy<<<4, 64>>>(2, d_x + offset, d_y, n - offset, broken);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(out.data(), d_y, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i + offset < n; ++i) wrong += out[i] != 2 * x[i + offset] + y[i];
  }
  CUDA(cudaFree(d_x));
  CUDA(cudaFree(d_y));
  std::printf("axpy: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
