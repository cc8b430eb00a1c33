// compact.cu: the elements of an array that are not zero, without gaps: each warp votes, counts by population count and
// takes its place with one atomic. The order among warps is open.
// ./flash check tests/simt/programs/compact.cu; nvcc -arch=native compact.cu. With an argument: lanes past the end stay
// out of the vote that names them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

__device__ int length;

__global__ void compact(const int* in, int* out, int n, bool broken) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & (warpSize - 1);
  if (broken && i >= n) return;
  const int value = i < n ? in[i] : 0;
  const unsigned keeps = __ballot_sync(0xffffffffu, value != 0);  //@ warp operation
  int begin = 0;
  if (lane == 0 && keeps) begin = atomicAdd(&length, __popc(keeps));
  begin = __shfl_sync(0xffffffffu, begin, 0);
  if (value != 0) out[begin + __popc(keeps & ((1u << lane) - 1))] = value;
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int n = 1000, zero = 0;
  std::vector<int> in(n), expected;
  for (int i = 0; i < n; ++i) {
    in[i] = i % 3 ? i : 0;
    if (in[i]) expected.push_back(in[i]);
  }
  int *d_in, *d_out, count;
  CUDA(cudaMalloc(&d_in, n * sizeof(int)));
  CUDA(cudaMalloc(&d_out, n * sizeof(int)));
  CUDA(cudaMemcpy(d_in, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  CUDA(cudaMemcpyToSymbol(length, &zero, sizeof zero));
  compact<<<(n + 127) / 128, 128>>>(d_in, d_out, n, broken);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpyFromSymbol(&count, length, sizeof count));
  std::vector<int> out(std::min(count, n));
  CUDA(cudaMemcpy(out.data(), d_out, out.size() * sizeof(int), cudaMemcpyDeviceToHost));
  std::sort(out.begin(), out.end());
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_out));
  const bool wrong = out != expected;
  std::printf("compact: %s\n", wrong ? "WRONG" : "right");
  return wrong;
}
