// reverse.cu: the example of reading-a-finding.md: a block reverses 256 numbers, and its barrier was forgotten.
// The page's finding is this program's: tests/check_test.sh compares them.
// ./flash check docs/book/reverse.cu
#include <cstdio>

__global__ void reverse(const float* x /*[256]*/, float* y /*[256]*/) {
  __shared__ float tile[256];
  const int t = threadIdx.x;
  tile[t] = x[t];
  y[t] = tile[255 - t];
}

int main() {
  float x[256], y[256];
  for (int i = 0; i < 256; ++i) x[i] = i;
  float *device_x, *device_y;
  cudaMalloc(&device_x, sizeof x);
  cudaMalloc(&device_y, sizeof y);
  cudaMemcpy(device_x, x, sizeof x, cudaMemcpyHostToDevice);
  reverse<<<1, 256>>>(device_x, device_y);
  cudaMemcpy(y, device_y, sizeof y, cudaMemcpyDeviceToHost);
  std::printf("%g %g\n", y[0], y[255]);
  cudaFree(device_x);
  cudaFree(device_y);
}
