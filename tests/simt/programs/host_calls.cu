// host_calls.cu: calls of CUDA's host interface beside allocation and copies, and their answers to wrong arguments:
// limits, properties, occupancy, rows and slices, what a pointer is, advice, pools, registered memory, host functions.
// ./flash check tests/simt/programs/host_calls.cu; nvcc -arch=native host_calls.cu. With an argument: a kernel is told
// of one element too many.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

static int wrong = 0;
#define EXPECT(what) \
  if (!(what)) std::printf("line %d: %s\n", __LINE__, #what), ++wrong
#define OK(call) EXPECT((call) == cudaSuccess)

__device__ float table[10];

__global__ void add(float* x, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;  //@ out of bounds
}
__global__ void reversed(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[63 - threadIdx.x];
}

// A word of shared memory for each thread.
struct FourBytes {
  __host__ __device__ size_t operator()(int threads) const { return 4 * static_cast<size_t>(threads); }
};

void count(void* number) {
  ++*static_cast<int*>(number);
}
void add_ten(cudaStream_t, cudaError_t status, void* number) {
  *static_cast<int*>(number) += status == cudaSuccess ? 10 : 1000;
}

void device() {
  cudaDeviceProp p;
  int value = 0, version = 0;
  size_t bytes = 0;
  OK(cudaGetDeviceProperties(&p, 0));
  EXPECT(cudaGetDeviceProperties(&p, 99) == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxBlockDimZ, 0));
  EXPECT(value == 64 && p.maxThreadsDim[2] == 64);
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0));
  EXPECT(value > 100000);
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerMultiprocessor, 0));
  EXPECT(value == static_cast<int>(p.sharedMemPerMultiprocessor) && p.reservedSharedMemPerBlock == 1024);
  EXPECT(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(100000), 0) == cudaErrorInvalidValue);
  OK(cudaRuntimeGetVersion(&version));
  EXPECT(version == CUDART_VERSION);
  OK(cudaDriverGetVersion(&version));
  EXPECT(version >= CUDART_VERSION);
  OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 64 << 20));
  OK(cudaDeviceGetLimit(&bytes, cudaLimitMallocHeapSize));
  EXPECT(bytes == 64 << 20);
  EXPECT(cudaDeviceGetLimit(&bytes, static_cast<cudaLimit>(77)) == cudaErrorInvalidValue);
  EXPECT(cudaDeviceCanAccessPeer(&value, 0, 99) == cudaErrorInvalidDevice);
  EXPECT(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessUnsupported);
  OK(cudaProfilerStart());
  OK(cudaProfilerStop());
}

void kernels() {
  cudaFuncAttributes of;
  int blocks = 0, grid = 0, block = 0;
  OK(cudaFuncGetAttributes(&of, reversed));
  EXPECT(of.sharedSizeBytes == 256 && of.maxThreadsPerBlock == 1024 && of.binaryVersion >= 75);
  OK(cudaFuncSetAttribute(reversed, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
  OK(cudaFuncGetAttributes(&of, reversed));
  EXPECT(of.maxDynamicSharedSizeBytes == 60000);
  OK(cudaFuncSetAttribute(reinterpret_cast<const void*>(reversed), cudaFuncAttributePreferredSharedMemoryCarveout, 50));
  EXPECT(cudaFuncSetAttribute(reversed, cudaFuncAttributePreferredSharedMemoryCarveout, 101) == cudaErrorInvalidValue);
  OK(cudaFuncSetCacheConfig(reversed, cudaFuncCachePreferL1));
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reversed, 1024, 0));
  EXPECT(blocks >= 1 && blocks <= 2);
  EXPECT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reversed, 0, 0) == cudaErrorInvalidValue);
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, add, 0, 200));
  EXPECT(grid > 0 && block > 0 && block <= 200);
  OK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, add, FourBytes()));
  EXPECT(grid > 0 && block > 0 && block <= 1024);
}

// 5 slices of 6 rows of 7 floats, there and back, and a part of them.
void rows_and_slices() {
  std::vector<float> from(5 * 6 * 7), back(5 * 6 * 7, -1.0f);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  cudaPitchedPtr device;
  const cudaExtent all = make_cudaExtent(7 * sizeof(float), 6, 5);
  OK(cudaMalloc3D(&device, all));
  EXPECT(device.pitch >= 28 && device.xsize == 28 && device.ysize == 6);
  OK(cudaMemset3D(device, 0, all));
  cudaMemcpy3DParms p = {};
  p.srcPtr = make_cudaPitchedPtr(from.data(), 28, 28, 6);
  p.dstPtr = device, p.extent = all, p.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&p));
  OK(cudaMemset2D(device.ptr, device.pitch, 0, 28, 2));  // the first two rows of the first slice
  p.srcPtr = device, p.dstPtr = make_cudaPitchedPtr(back.data(), 28, 28, 6), p.kind = cudaMemcpyDeviceToHost;
  p.srcPos = p.dstPos = make_cudaPos(0, 1, 0), p.extent = make_cudaExtent(28, 5, 5);  // without the first rows
  OK(cudaMemcpy3D(&p));
  for (size_t i = 0; i < back.size(); ++i) {
    const size_t row = i / 7 % 6, slice = i / 42;
    EXPECT(back[i] == (row == 0 ? -1.0f : slice == 0 && row == 1 ? 0.0f : from[i]));
  }
  EXPECT(cudaMemcpy2D(back.data(), 28, device.ptr, 512, 28, 0, cudaMemcpyDeviceToHost) == cudaSuccess);
  OK(cudaFree(device.ptr));
}

void pointers(bool defect) {
  float *device, *managed, *pinned, on_host = 0;
  cudaPointerAttributes of;
  OK(cudaMalloc(&device, 400));
  OK(cudaMallocManaged(&managed, 400));
  OK(cudaHostAlloc(&pinned, 400, cudaHostAllocMapped));
  OK(cudaPointerGetAttributes(&of, device + 3));
  EXPECT(of.type == cudaMemoryTypeDevice && of.device == 0 && of.devicePointer == device + 3);
  OK(cudaPointerGetAttributes(&of, managed));
  EXPECT(of.type == cudaMemoryTypeManaged && of.hostPointer == managed);
  OK(cudaPointerGetAttributes(&of, pinned));
  EXPECT(of.type == cudaMemoryTypeHost);
  OK(cudaPointerGetAttributes(&of, &on_host));
  EXPECT(of.type == cudaMemoryTypeUnregistered && of.devicePointer == nullptr);

#if CUDART_VERSION >= 13000
  const cudaMemLocation here{cudaMemLocationTypeDevice, 0};
  OK(cudaMemPrefetchAsync(managed, 400, here, 0, nullptr));
  EXPECT(cudaMemAdvise(device, 400, cudaMemAdviseSetReadMostly, here) == cudaErrorInvalidValue);
#else
  const int here = 0;
  OK(cudaMemPrefetchAsync(managed, 400, here, nullptr));
#endif
  OK(cudaMemAdvise(managed, 400, cudaMemAdviseSetReadMostly, here));
  cudaGetLastError();

  std::vector<char> memory(1 << 16);
  OK(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault));
  EXPECT(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault) ==
         cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaPointerGetAttributes(&of, memory.data()));
  EXPECT(of.type == cudaMemoryTypeHost);
  OK(cudaHostUnregister(memory.data()));
  EXPECT(cudaHostUnregister(memory.data()) == cudaErrorHostMemoryNotRegistered);

  float* same = nullptr;
  OK(cudaHostGetDevicePointer(&same, pinned, 0));
  for (int i = 0; i < 100; ++i) pinned[i] = 1;
  add<<<4, 32>>>(same, 2, defect ? 101 : 100);
  OK(cudaDeviceSynchronize());
  EXPECT(pinned[99] == 3);

  void* symbol = nullptr;
  size_t bytes = 0;
  OK(cudaGetSymbolAddress(&symbol, table));
  OK(cudaGetSymbolSize(&bytes, table));
  EXPECT(bytes == sizeof table);
  OK(cudaPointerGetAttributes(&of, symbol));
  EXPECT(of.type == cudaMemoryTypeDevice);
  OK(cudaFree(device));
  OK(cudaFree(managed));
  OK(cudaFreeHost(pinned));
}

void pools() {
  cudaMemPool_t pool, now;
  unsigned long long threshold = 1 << 20, kept = 0;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaDeviceGetMemPool(&now, 0));
  EXPECT(pool == now);
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  EXPECT(kept == threshold);
  cudaStream_t stream;
  float* x;
  OK(cudaStreamCreate(&stream));
  OK(cudaMallocAsync(&x, 400, stream));
  OK(cudaMemsetAsync(x, 0, 400, stream));
  OK(cudaFreeAsync(x, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamDestroy(stream));
}

void streams() {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  int least = 9, greatest = 9, priority = 9, called = 0;
  unsigned flags = 9;
  float ms = -1;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT(least == 0 && greatest < 0);
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 10));
  OK(cudaStreamGetPriority(stream, &priority));
  EXPECT(priority == greatest);
  OK(cudaStreamGetFlags(stream, &flags));
  EXPECT(flags == cudaStreamNonBlocking);
  cudaStream_t none;
  EXPECT(cudaStreamCreateWithFlags(&none, 2) == cudaErrorInvalidValue);
  OK(cudaEventCreateWithFlags(&begin, cudaEventDisableTiming));
  OK(cudaEventCreate(&end));
  OK(cudaEventRecord(begin, stream));
  OK(cudaLaunchHostFunc(stream, count, &called));
  OK(cudaStreamAddCallback(stream, add_ten, &called, 0));
  EXPECT(cudaStreamAddCallback(stream, add_ten, &called, 1) == cudaErrorInvalidValue);
  OK(cudaEventRecord(end, stream));
  OK(cudaEventSynchronize(end));
  EXPECT(called == 11);
  OK(cudaStreamQuery(stream));
  OK(cudaEventQuery(end));
  EXPECT(cudaEventElapsedTime(&ms, begin, end) == cudaErrorInvalidResourceHandle);  // begin has no time
  cudaGetLastError();
  OK(cudaEventDestroy(begin));
  OK(cudaEventDestroy(end));
  OK(cudaStreamDestroy(stream));
}

int main(int argc, char**) {
  device();
  kernels();
  rows_and_slices();
  pointers(argc > 1);
  pools();
  streams();
  EXPECT(std::strcmp(cudaGetErrorString(cudaErrorPeerAccessNotEnabled), "peer access has not been enabled") == 0);
  EXPECT(std::strcmp(cudaGetErrorName(cudaErrorNotPermitted), "cudaErrorNotPermitted") == 0);
  std::printf("host_calls: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
