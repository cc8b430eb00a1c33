// template.cu: a kernel to copy when you write your own: y = a*x + y over n elements, then the sum of each block.
// It shows the two things that differ from a bare CUDA file; docs/write-your-own-kernel.md explains them.
// Run: simt_template_test
#include "gpu/kernel.cuh"

namespace flash::inline FLASH_MACHINE {

constexpr int threads = 128;

__global__ void __launch_bounds__(threads)
    axpy_sum(float a, const float* x /*[n]*/, float* y /*[n]*/, float* sums /*[gridDim.x]*/, int n) {
  __shared__ float partial[threads];
  const int t = threadIdx.x, i = blockIdx.x * threads + t;

  // Update one element; the threads past the end take part in the barriers below, so they do not return.
  float value = 0.0f;
  if (i < n) {
    value = fmaf(a, x[i], y[i]);
    y[i] = value;
  }

  // Sum the block's elements as a tree.
  partial[t] = value;
  __syncthreads();  // all partial values are written before a neighbour reads them
  for (int stride = threads / 2; stride > 0; stride /= 2) {
    if (t < stride) partial[t] += partial[t + stride];
    __syncthreads();  // this level is complete before the next one reads it
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
}

// Host side: the same text on every machine.
void run_axpy_sum(Machine& m, float a, const float* host_x, float* host_y, float* host_sums, int n) {
  const int blocks = (n + threads - 1) / threads;
  const Array<float> x = m.upload("x", host_x, n);
  const Array<float> y = m.upload("y", host_y, n);
  const Array<float> sums = m.alloc<float>("sums", blocks);
  axpy_sum<<<blocks, threads>>>(a, x.data(), y.data(), sums.data(), n);
  m.download(host_y, y);
  m.download(host_sums, sums);
}

}  // namespace flash::inline FLASH_MACHINE
