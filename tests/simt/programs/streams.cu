// streams.cu: launches in several streams, ordered in every way that CUDA has: by events, by the legacy stream, by the
// host, by a copy. Two numbers go through all of them.
// ./flash check tests/simt/programs/streams.cu; nvcc -arch=native streams.cu. With an argument: a stream does not wait
// for the event of another.
#include <cuda_runtime.h>

#include <cstdio>

constexpr int n = 1000;

__global__ void fill(float* x, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;  //@ race
}
__global__ void add(float* y, const float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i];  //@ race
}

static int wrong = 0;
#define OK(call) \
  if ((call) != cudaSuccess) std::printf("line %d: %s\n", __LINE__, #call), ++wrong

int main(int argc, char**) {
  float *x, *y, *beside, host[n];
  OK(cudaMalloc(&x, sizeof host));
  OK(cudaMalloc(&y, sizeof host));
  OK(cudaMalloc(&beside, sizeof host));
  OK(cudaMemset(y, 0, sizeof host));
  cudaStream_t blocking, other, free_one, free_two;
  cudaEvent_t filled, added;
  OK(cudaStreamCreate(&blocking));
  OK(cudaStreamCreate(&other));
  OK(cudaStreamCreateWithFlags(&free_one, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&free_two, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&added, cudaEventDisableTiming));
  OK(cudaDeviceSynchronize());

  // Events: what one stream writes another reads, and the first may write again when the second has read.
  fill<<<8, 128, 0, free_one>>>(x, 1);
  fill<<<8, 128, 0, free_two>>>(beside, 5);  // another array: no order is needed
  OK(cudaEventRecord(filled, free_one));
  if (argc == 1) OK(cudaStreamWaitEvent(free_two, filled, 0));
  add<<<8, 128, 0, free_two>>>(y, x);  // 1
  OK(cudaEventRecord(added, free_two));
  OK(cudaStreamWaitEvent(free_one, added, 0));
  fill<<<8, 128, 0, free_one>>>(x, 2);

  // The host, then the legacy stream, which blocking streams wait for and which waits for them.
  OK(cudaStreamSynchronize(free_one));
  add<<<8, 128, 0, blocking>>>(y, x);  // 3
  fill<<<8, 128>>>(x, 10);
  add<<<8, 128, 0, other>>>(y, x);  // 13
  OK(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) wrong += host[i] != 13;

  // After a copy that the host waits for, any stream goes on.
  fill<<<8, 128, 0, free_two>>>(x, 4);
  OK(cudaEventRecord(filled, free_two));
  OK(cudaEventSynchronize(filled));
  add<<<8, 128, 0, free_one>>>(y, x);  // 17
  OK(cudaStreamQuery(free_two));
  OK(cudaDeviceSynchronize());
  add<<<8, 128>>>(y, beside);  // 22
  OK(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) wrong += host[i] != 22;
  std::printf("streams: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
