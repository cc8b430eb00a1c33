// graph.cu: a graph by capture of two streams: what they are given is recorded, with its arguments, and done again by
// each launch of the graph, in the order of the capture.
// ./flash check tests/simt/programs/graph.cu; nvcc -arch=native graph.cu. With an argument: a captured kernel is told
// of one element too many.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

static int wrong = 0;
#define EXPECT(what) \
  if (!(what)) std::printf("line %d: %s\n", __LINE__, #what), ++wrong
#define OK(call) EXPECT((call) == cudaSuccess)

constexpr int n = 100;

__global__ void axpb(float* x, float a, float b, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = a * x[i] + b;  //@ out of bounds
}

void count(void* number) {
  ++*static_cast<int*>(number);
}

int main(int argc, char**) {
  float *x, *y, host[n];
  int called = 0;
  OK(cudaMalloc(&x, sizeof host));
  OK(cudaMalloc(&y, sizeof host));
  OK(cudaMemset(x, 0, sizeof host));
  OK(cudaMemset(y, 0, sizeof host));
  cudaStream_t stream, beside;
  cudaEvent_t fork, join;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  OK(cudaDeviceSynchronize());

  cudaGraph_t graph;
  cudaStreamCaptureStatus status;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  OK(cudaStreamIsCapturing(stream, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  float b = 1;
  axpb<<<4, 32, 0, stream>>>(x, 2, b, n + (argc > 1));
  b = 1000;  // the graph has the argument as it was
  OK(cudaEventRecord(fork, stream));
  OK(cudaStreamWaitEvent(beside, fork, 0));
  axpb<<<4, 32, 0, beside>>>(y, 1, 5, n);
  OK(cudaEventRecord(join, beside));
  OK(cudaStreamWaitEvent(stream, join, 0));
  OK(cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, stream));
  OK(cudaLaunchHostFunc(stream, count, &called));
  OK(cudaStreamEndCapture(stream, &graph));
  EXPECT(called == 0);  // nothing has been done yet

  size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 4);
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));  // what is instantiated stays
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(called == 3);
  for (int i = 0; i < n; ++i) EXPECT(host[i] == 7);
  OK(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) EXPECT(host[i] == 15);
  OK(cudaGraphExecDestroy(exec));

  // Work that nobody has waited for, and a call that cannot be captured.
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  OK(cudaEventRecord(fork, stream));
  OK(cudaStreamWaitEvent(beside, fork, 0));
  axpb<<<4, 32, 0, beside>>>(y, 1, 5, n);
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined && graph == nullptr);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  axpb<<<4, 32, 0, stream>>>(y, 0, 1, n);  // the stream is as it was
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost));
  EXPECT(host[n - 1] == 1);
  std::printf("graph: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
