/* example.c: libflashphases from C: bfloat16 tensors in device memory, one call on a stream, O and LSE checked.
 * With Q = 0 every key weighs the same: O is the mean of V, 1.5 here, and LSE is the logarithm of the number of keys.
 * Use: nvcc -o example example.c $(pkg-config --cflags --libs libflashphases) && ./example
 * Where there is no toolkit, by cc: cc -std=c99 -DWITHOUT_CUDA example.c … -lm
 */
#include <flashphases.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 2, H = 3, S = 1000, D = 64, elements = B * H * S * D, rows = B * H * S };

/* The library's answer, or the end. */
static void check(int status) {
  if (status == FLASHPHASES_OK) return;
  fprintf(stderr, "libflashphases: %s\n", flashphases_error());
  exit(status == FLASHPHASES_NO_GPU ? 77 : 1);
}

/* A dense [B, H, S, D] tensor that is only read. */
static flashphases_input dense(const void* data) {
  const flashphases_input tensor = {data, (int64_t)H * S * D, (int64_t)S * D, D};
  return tensor;
}

static flashphases_forward_args problem(const void* q, const void* k, const void* v, void* o, float* lse) {
  flashphases_forward_args args = {0}; /* the scale 1/sqrt(D), no mask, the fastest phase, its own blocks */
  args.struct_size = sizeof args;
  args.type = FLASHPHASES_BFLOAT16;
  args.B = B, args.H = H, args.Sq = S, args.Sk = S, args.D = D;
  args.q = dense(q), args.k = dense(k), args.v = dense(v);
  args.o.data = o, args.o.stride_b = args.q.stride_b, args.o.stride_h = args.q.stride_h, args.o.stride_s = D;
  args.lse = lse;
  return args;
}

#ifdef WITHOUT_CUDA

/* Only what can be said without device memory: an empty problem shows whether there is a GPU. */
int main(void) {
  flashphases_forward_args args = problem(NULL, NULL, NULL, NULL, NULL);
  args.B = 0;
  args.phase = 8; /* its kernel wants no workspace */
  printf("libflashphases %s\n", flashphases_version());
  check(flashphases_forward(&args, NULL, 0, NULL));
  return 0;
}

#else

#include <cuda_runtime_api.h>

static void check_cuda(cudaError_t status) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
  exit(status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ? 77 : 1);
}

static void* on_device(size_t bytes) {
  void* memory = NULL;
  check_cuda(cudaMalloc(&memory, bytes));
  return memory;
}

/* bfloat16 is the upper half of a float. */
static uint16_t to_bfloat16(float x) {
  union {
    float number;
    uint32_t bits;
  } u = {x};
  return (uint16_t)(u.bits >> 16);
}
static float from_bfloat16(uint16_t x) {
  union {
    uint32_t bits;
    float number;
  } u = {(uint32_t)x << 16};
  return u.number;
}

static uint16_t v[elements], o[elements];
static float lse[rows];

int main(void) {
  cudaStream_t stream;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void *device_qk = on_device(sizeof v), *device_v = on_device(sizeof v), *device_o = on_device(sizeof o);
  float* device_lse = on_device(sizeof lse);
  for (int i = 0; i < elements; ++i) v[i] = to_bfloat16((float)(i / D % S % 4)); /* key j holds j % 4 */
  check_cuda(cudaMemsetAsync(device_qk, 0, sizeof v, stream));
  check_cuda(cudaMemcpyAsync(device_v, v, sizeof v, cudaMemcpyHostToDevice, stream));

  const flashphases_forward_args args = problem(device_qk, device_qk, device_v, device_o, device_lse);
  int32_t phase = 0;
  size_t bytes = 0;
  check(flashphases_chosen_phase(&args, &phase));
  check(flashphases_workspace(&args, &bytes));
  void* workspace = bytes ? on_device(bytes) : NULL;
  check(flashphases_forward(&args, workspace, bytes, stream));

  check_cuda(cudaMemcpyAsync(o, device_o, sizeof o, cudaMemcpyDeviceToHost, stream));
  check_cuda(cudaMemcpyAsync(lse, device_lse, sizeof lse, cudaMemcpyDeviceToHost, stream));
  check_cuda(cudaStreamSynchronize(stream));
  float worst = 0;
  for (int i = 0; i < elements; ++i) worst = fmaxf(worst, fabsf(from_bfloat16(o[i]) - 1.5f));
  for (int i = 0; i < rows; ++i) worst = fmaxf(worst, fabsf(lse[i] - logf(S)));
  printf("libflashphases %s, phase %d: O = %g, LSE = %g, worst error %g\n", flashphases_version(), phase,
         from_bfloat16(o[0]), lse[0], worst);
  return !(worst <= 1e-2f);
}

#endif
