// lockstep.cu: a reduction whose last warp goes on without barriers, once with __syncwarp() between the steps, and,
// with an argument, relying on lockstep through volatile, as programs did before Volta: one mistake, and one finding.
// ./flash check tests/simt/programs/lockstep.cu; nvcc -arch=native lockstep.cu
#include <cuda_runtime.h>

#include <cstdio>

constexpr int kThreads = 128;

__global__ void sum(const float* x, float* out, bool broken) {
  __shared__ float s[kThreads];
  const int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  if (t < 64) s[t] += s[t + 64];
  __syncthreads();
  if (t >= 32) return;
  float value = 0;
  if (broken) {
    volatile float* v = s;
    v[t] += v[t + 32];  //@ lockstep assumed
    v[t] += v[t + 16];
    v[t] += v[t + 8];
    v[t] += v[t + 4];
    v[t] += v[t + 2];
    v[t] += v[t + 1];
    value = v[t];
  } else {
    value = s[t] + s[t + 32];
    for (int distance = 16; distance > 0; distance /= 2) {
      __syncwarp();
      s[t] = value;
      __syncwarp();
      value += s[t + distance];
    }
  }
  if (t == 0) *out = value;
}

int main(int argc, char**) {
  float host[kThreads], *x, *out, result;
  for (int i = 0; i < kThreads; ++i) host[i] = static_cast<float>(i);
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&out, sizeof result);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  sum<<<1, kThreads>>>(x, out, argc > 1);
  if (cudaMemcpy(&result, out, sizeof result, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  const bool right = result == kThreads * (kThreads - 1) / 2;
  std::printf("lockstep: %s\n", right ? "right" : "WRONG");
  return !right;
}
