// jacobi.cu: heat in a rod, all steps in one launch: a barrier of the whole grid between them, so that no block reads
// what another is about to write.
// ./flash check tests/simt/programs/jacobi.cu; nvcc -arch=native jacobi.cu. With an argument: the barrier is missing.
#include <cooperative_groups.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

__global__ void jacobi(float* now, float* next, int n, int steps, bool broken) {
  const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  for (int step = 0; step < steps; ++step) {
    for (int i = grid.thread_rank(); i < n; i += grid.size())
      next[i] = i > 0 && i + 1 < n ? 0.25f * (now[i - 1] + now[i + 1]) + 0.5f * now[i] : now[i];  //@ race
    if (!broken) grid.sync();
    float* const last = now;
    now = next, next = last;
  }
}

int main(int argc, char**) {
  bool broken = argc > 1;
  int n = 500, steps = 4;
  std::vector<float> now(n), next(n), out(n);
  for (int i = 0; i < n; ++i) now[i] = static_cast<float>(i * 17 % 64);
  float *d_now, *d_next;
  CUDA(cudaMalloc(&d_now, n * sizeof(float)));
  CUDA(cudaMalloc(&d_next, n * sizeof(float)));
  CUDA(cudaMemcpy(d_now, now.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  void* arguments[] = {&d_now, &d_next, &n, &steps, &broken};
  CUDA(cudaLaunchCooperativeKernel(jacobi, dim3(4), dim3(64), arguments));
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(out.data(), steps % 2 ? d_next : d_now, n * sizeof(float), cudaMemcpyDeviceToHost));
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < n; ++i)
      next[i] = i > 0 && i + 1 < n ? 0.25f * (now[i - 1] + now[i + 1]) + 0.5f * now[i] : now[i];
    std::swap(now, next);
  }
  CUDA(cudaFree(d_now));
  CUDA(cudaFree(d_next));
  const bool wrong = out != now;
  std::printf("jacobi: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
