// bitonic_sort.cu: Batcher's bitonic sort of one block's keys in shared memory: a comparison per thread and step, a
// barrier between steps.
// ./flash check tests/simt/programs/bitonic_sort.cu; nvcc -arch=native bitonic_sort.cu. With an argument: no barrier.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

template <class Key>
__device__ void put_in_order(Key& a, Key& b, bool rising) {
  if ((a > b) != rising) return;
  const Key kept = a;
  a = b;  //@ race
  b = kept;
}

// blockDim.x threads sort 2 * blockDim.x keys, a power of two.
template <class Key>
__global__ void bitonic_sort(Key* keys, bool broken) {
  extern __shared__ unsigned char storage[];
  Key* s = reinterpret_cast<Key*>(storage);
  const int t = threadIdx.x, n = 2 * blockDim.x;
  s[t] = keys[t], s[t + n / 2] = keys[t + n / 2];
  for (int size = 2; size <= n; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      if (!broken || size < 8) __syncthreads();
      const int at = 2 * t - t % stride;
      put_in_order(s[at], s[at + stride], (at & size) == 0);
    }
  __syncthreads();
  keys[t] = s[t], keys[t + n / 2] = s[t + n / 2];
}

template <class Key>
bool sorts(int n, bool broken) {
  std::vector<Key> keys(n), sorted;
  for (int i = 0; i < n; ++i) keys[i] = static_cast<Key>(i * 197 % 1009) - 500;
  sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  Key* d_keys;
  CUDA(cudaMalloc(&d_keys, n * sizeof(Key)));
  CUDA(cudaMemcpy(d_keys, keys.data(), n * sizeof(Key), cudaMemcpyHostToDevice));
  bitonic_sort<<<1, n / 2, n * sizeof(Key)>>>(d_keys, broken);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(keys.data(), d_keys, n * sizeof(Key), cudaMemcpyDeviceToHost));
  CUDA(cudaFree(d_keys));
  return keys == sorted;
}

int main(int argc, char**) {
  const bool right = sorts<int>(512, false) && sorts<double>(256, argc > 1);
  std::printf("bitonic_sort: %s\n", right ? "right" : "WRONG");
  return !right;
}
