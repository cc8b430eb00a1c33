#!/bin/sh
# check_test.sh: ./flash check: its exit status, what it prints and where, its options, and its refusals.
# The programs of tests/programs have a test of their own: programs_test.sh.
# sh tests/check_test.sh SETTINGS, which the build writes
set -eu
# shellcheck source=tests/check_lib.sh
. "$(dirname "$0")/check_lib.sh"

# contains FILE TEXT: the last call has written it there.
contains() {
  case $(cat "$1") in
    *"$2"*) ;;
    *) failed=1; printf '"%s" is not in %s:\n' "$2" "$1"; cat "$1" ;;
  esac
}

expect 2 'FILE.cu is missing; expected a CUDA program; write ./flash check FILE.cu'
expect 2 'no.cu is not there; expected a CUDA program; check its name' no.cu
expect 2 "--order is 'sideways'; expected forward, reverse or random" --order sideways a.cu
expect 2 "--completion is 'soon'; expected late, eager or random" --completion soon a.cu
expect 2 '--seed is without a value; expected a number' --seed
expect 2 "--seed is '-1'; expected a number of at most 17 digits" --seed -1 a.cu
expect 2 "--profile is 'sm_70'; expected sm_80 or sm_90" --profile sm_70 a.cu
expect 2 "flag '--fast' is unknown" --fast a.cu
expect 2 "--arch is 'ampere'; expected sm_80, sm_90 or the like" --arch ampere a.cu
expect 2 "--timeout is 'soon'; expected a number" --timeout soon a.cu
expect 2 '--player is without a value; expected a file to write' --player
touch a.cu
expect 2 'b.cu is not there' a.cu b.cu
expect 2 '--player is given with --sim or -o; expected a checked run' --player p.html --sim a.cu
expect 2 '--player is given with --sim or -o; expected a checked run' --player p.html -o a a.cu
expect 2 '--player is none/p.html; expected a file in a folder that can be written' --player none/p.html a.cu
expect 0 'usage: ./flash check' --help

# The book's page on findings quotes a program and what is found in it.
book=$root/docs/book
expect 1 'flash check: 2 findings' "$book/reverse.cu"
# quoted LANGUAGE: the page's block of code in that language, without its fences.
quoted() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/!p;}" "$book/reading-a-finding.md"; }
case $(cat out err) in
  *"$(quoted text)"*) ;;
  *) failed=1; echo 'the page quotes other findings than'; cat out err ;;
esac
case $(cat "$book/reverse.cu") in *"$(quoted cpp)"*) ;; *) failed=1; echo 'the page quotes another kernel' ;; esac
[ "$(quoted text | wc -l)" -gt 8 ] || { failed=1; echo 'the page quotes no findings'; }

# One program for all the rest: what it does hangs on its argument, so that it is compiled seldom.
cat >'a program.cu' <<'END'
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cooperative_groups.h>
#include <cuda_runtime.h>

__device__ int last;

__global__ void who_is_last() { last = threadIdx.x; }  // a race on purpose

__global__ void scale(float* x, float by, int n) {
  extern __shared__ float s[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) x[i] = fmaf(s[threadIdx.x], by, 1.0f);
}

struct Tensor {
  static inline int alive = 0;
  float* p;
  int n;
  Tensor(float* data, int size) : p(data), n(size) { ++alive; }
  Tensor(const Tensor& other) : p(other.p), n(other.n) { ++alive; }
  ~Tensor() { --alive; }
};
__global__ void set(Tensor t, float value) {
  if (blockIdx.x == 0 && threadIdx.x < t.n) t.p[threadIdx.x] = value;
  t.n = 0;  // the thread's own
}
template <class T>
__global__ void set_any(T t, float value) {
  if (threadIdx.x < t.n) t.p[threadIdx.x] = value;
  t.n = 0;
}
__global__ void asserts() { assert(threadIdx.x > 0); }
__global__ void add_to_each(float** rows) { rows[threadIdx.x][0] += 1; }
__global__ void partition(int* out) {
  const auto warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  const auto label = cooperative_groups::labeled_partition(warp, threadIdx.x % 3);
  const auto binary = cooperative_groups::binary_partition(warp, threadIdx.x % 4 == 0);
  out[threadIdx.x] = label.size() * 10000 + label.thread_rank() * 100 + binary.size();
}
__global__ void forever(volatile float* x) { for (;;) x[0] = x[0] + 1; }
struct alignas(16) Row { float x[4]; };
__device__ float first_of(Row row) { return row.x[0]; }
__global__ void firsts(const Row* rows, float* out) { out[threadIdx.x] = first_of(rows[threadIdx.x]); }

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  float host[100], *x;
  for (float& value : host) value = 2;
  if (cudaMalloc(&x, sizeof host) != cudaSuccess) return 9;
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  scale<<<4, 32, 32 * sizeof(float)>>>(x, 3, std::strcmp(what, "over") == 0 ? 101 : 100);
  if (std::strcmp(what, "race") == 0) who_is_last<<<1, 64>>>();
  if (std::strcmp(what, "configuration") == 0) {
    scale<<<4, 2048>>>(x, 3, 100);
    if (cudaGetLastError() != cudaErrorInvalidConfiguration) return 8;
    if (cudaGetLastError() != cudaSuccess) return 8;
  }
  if (std::strcmp(what, "copy") == 0)
    return cudaMemcpy(host, x, sizeof host + 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue ? 0 : 8;
  if (std::strcmp(what, "direction") == 0)
    return cudaMemcpy(x, host, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue ? 0 : 8;
  if (std::strcmp(what, "twice") == 0) cudaFree(x);
  if (std::strcmp(what, "host") == 0) return x[7] == 7 ? last : 0;
  if (std::strcmp(what, "rows") == 0) {  // 10 of 10 numbers each, there and back; a wider row is refused
    char *rows, back[400];
    size_t pitch;
    if (cudaMallocPitch(&rows, &pitch, 40, 10) != cudaSuccess || pitch < 40 || pitch % 16 != 0) return 8;
    if (cudaMemcpy2D(rows, pitch, host, 40, 40, 10, cudaMemcpyHostToDevice) != cudaSuccess) return 8;
    if (cudaMemcpy2DAsync(back, 40, rows, pitch, 40, 10, cudaMemcpyDeviceToHost) != cudaSuccess) return 8;
    if (std::memcmp(back, host, 400) != 0) return 8;
    return cudaMemcpy2D(rows, 32, host, 40, 40, 10, cudaMemcpyHostToDevice) == cudaErrorInvalidPitchValue ? 0 : 8;
  }
  if (std::strcmp(what, "managed") == 0) {
    cudaMallocManaged(&x, 8);
    return x[1] = 0;
  }
  if (std::strcmp(what, "memory") == 0) {  // all that is free, and no byte more; managed memory is zero
    size_t free, total;
    char* all;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess || free != total - 400) return 8;
    if (cudaMalloc(&all, free + 1) != cudaErrorMemoryAllocation) return 8;
    if (cudaMalloc(&all, free) != cudaSuccess || cudaMemset(all + free - 8, 1, 8) != cudaSuccess) return 8;
    cudaFree(all);
    cudaMallocManaged(&all, free);
    return all[0] + all[free - 8];
  }
  if (std::strcmp(what, "shared") == 0)
    return cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 200000) == cudaSuccess ? 0 : 8;
  cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
  if (std::strcmp(what, "last") == 0) {
    int value;
    who_is_last<<<1, 64>>>();
    cudaMemcpyFromSymbol(&value, last, sizeof value);
    std::printf("last %d\n", value);
  }
  if (std::strcmp(what, "untyped") == 0) {
    void* nobody_knows;
    cudaMalloc(&nobody_knows, 400);
    cudaMemset(nobody_knows, 0, 400);
    scale<<<4, 32, 32 * sizeof(float)>>>((float*)nobody_knows, 3, 101);
  }
  if (std::strcmp(what, "class") == 0) {  // the host makes the copies, as many as it destroys
    Tensor t(x, 2);
    set<<<2, 32>>>(t, 5);
    set_any<Tensor><<<1, 32>>>(t, 6);
    std::printf("alive %d\n", Tensor::alive);
    cudaMemcpy(host, x, 8, cudaMemcpyDeviceToHost);
    return host[1] == 6 ? 0 : 8;
  }
  if (std::strcmp(what, "assert") == 0) {
    asserts<<<1, 1>>>();
    if (cudaDeviceSynchronize() != cudaErrorAssert || cudaGetLastError() != cudaErrorAssert) return 8;
    return std::strcmp(cudaGetErrorName(cudaStreamSynchronize(0)), "cudaErrorAssert");
  }
  if (std::strcmp(what, "many") == 0) {
    float *rows[6], **device;
    for (float*& row : rows) cudaMalloc(&row, 4), cudaMemset(row, 0, 4);
    cudaMalloc(&device, sizeof rows);
    cudaMemcpy(device, rows, sizeof rows, cudaMemcpyHostToDevice);
    add_to_each<<<1, 6>>>(device);
  }
  if (std::strcmp(what, "partition") == 0) {
    int *out, sums[32];
    cudaMalloc(&out, sizeof sums);
    partition<<<1, 32>>>(out);
    cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 32; ++i)  // of 3 labels: 11, 11, 10 lanes; of those that divide by 4: 8
      if (sums[i] != (i % 3 == 2 ? 10 : 11) * 10000 + i / 3 * 100 + (i % 4 == 0 ? 8 : 24)) return 8;
    return 0;
  }
  if (std::strcmp(what, "forever") == 0) forever<<<1, 1>>>((volatile float*)x);
  if (std::strcmp(what, "value") == 0) {  // there are 25 rows
    float* out;
    cudaMalloc(&out, 104);
    firsts<<<1, argc > 2 ? 26 : 25>>>((Row*)x, out);
  }
  std::printf("%g\n", host[99]);
  cudaFree(x);
  if (std::strcmp(what, "abort") == 0) std::abort();
}
END
# Compiled once: -o, and the environment that the script sets.
expect 0 '' -o program 'a program.cu'
run() {
  want=$1 text=$2 status=0
  shift 2
  FLASH_CHECK_STATUS=$work/findings ./program "$@" >out 2>err || status=$?
  [ "$status" = "$want" ] || { failed=1; printf 'program %s: exit %s, want %s\n' "$*" "$status" "$want"; }
  contains err "$text"
}
run 0 'scale  grid (4,1,1)  block (32,1,1)
  global memory                requested bytes    requests     sectors  sectors/req
  x                   load                 400           4          13         3.25
  x                   store                400           4          13         3.25'
contains err 'shared memory per block                  128  launch__shared_mem_per_block'
contains err 'FLOP                                     200'
[ "$(cat out)" = 7 ] || { failed=1; echo 'stdout is not the program'\''s alone'; }
run 0 'race: write after write of last[0] (4 bytes)
  write  a program.cu:9' race
[ "$(cat findings)" = 1 ] || { failed=1; echo 'one finding was not counted as one'; }
run 0 'out of bounds: read of x[100] (4 bytes); x has 100 elements
  read  a program.cu:14' over
run 0 'out of bounds: read of nobody_knows[100] (4 bytes); nobody_knows has 400 bytes' untyped
run 0 'call: the launch of scale: block.x is 2048; expected 1 to 1024; use a smaller block and more blocks
  calls  a program.cu:58' configuration
run 0 'call: cudaMemcpy: x has 400 bytes; the copy reaches byte 404
  calls  a program.cu:63' copy
run 0 'call: cudaMemcpy: cudaMemcpyDeviceToHost, but the source is memory of the host' direction
run 0 'host access: host code reads x[7], which is device memory
  reads  a program.cu:67
  remedy: copy it with cudaMemcpy, or allocate it with cudaMallocManaged' host
contains err 'host access: host code reads last[0]'
run 0 'call: cudaMemcpy2D: a row is wider than its pitch' rows
run 0 '' managed
[ "$(cat findings)" = 0 ] || { failed=1; echo 'managed memory is not the host'\''s'; }
run 0 '' memory
run 0 'call: cudaFree: the pointer is not one that cudaMalloc gave, or was freed before
  calls  a program.cu:142' twice
run 0 '' class
[ "$(cat out)" = 'alive 1' ] || { failed=1; echo 'copies of an argument are not destroyed once each'; }
[ "$(cat findings)" = 0 ] || { failed=1; echo 'an argument with a destructor is accused'; }
run 0 'assertion: `threadIdx.x > 0` is false' assert
run 0 'row (6 arrays)      load                  24           6           6         1.00' many
run 0 '' partition
run 0 'firsts  grid (1,1,1)  block (25,1,1)
  global memory                requested bytes    requests     sectors  sectors/req
  x                   load                 400           1          13        13.00' value
[ "$(cat findings)" = 0 ] || { failed=1; echo 'a struct by value is accused'; }
run 0 'out of bounds: read of x[100] (16 bytes); x has 100 elements
  read  a program.cu:47' value over
FLASH_CHECK='timeout=1' run 0 'no end: a thread still runs when the launch is to end' forever
FLASH_CHECK='order=forward' run 0 '' last
contains out 'last 63'
FLASH_CHECK='order=reverse' run 0 '' last
contains out 'last 0'
FLASH_CHECK='order=random seed=1' run 0 '' last
one=$(cat out)
for seed in 2 3 4; do
  FLASH_CHECK="order=random seed=$seed" run 0 '' last
  [ "$(cat out)" = "$one" ] || one=differs
done
[ "$one" = differs ] || { failed=1; echo 'the seed changes nothing'; }
FLASH_CHECK='profile=sm_90' run 0 '' shared
FLASH_CHECK='profile=sm_80' run 8 'expected 0 to 166912 on sm_80' shared

# The exit status, with and without findings; what a program that fails leaves.
expect 3 'flash check: the program ended with status 134 (signal 6)' 'a program.cu' -- abort
expect 1 '"kind": "race"' --json 'a program.cu' -- race
contains out '"kernel": "who_is_last"'
contains out '"flops": 200'
contains out '"launches": [1, 1]'
contains err 'flash check: 1 finding'
contains err 7
expect 0 'flash check: no findings' --sim 'a program.cu' -- race
contains out 7

# Options reach the compiler and the program. What it prints hangs on each of them.
mkdir 'a folder' tmp
echo '#define FROM "a folder"' >'a folder/from.h'
cat >options.cu <<'END'
#include <cstdio>
#include <cuda_pipeline.h>
#if __has_include("from.h")
#include "from.h"
#else
#define FROM "nowhere"
#endif
#ifndef NAME
#define NAME "nobody"
#endif
__device__ int last, in_time, arrived, numbers[64];
__global__ void who_is_last() { last = threadIdx.x; }
__global__ void no_wait() {  // on purpose
  __shared__ int copied[64];
  __pipeline_memcpy_async(&copied[threadIdx.x], &numbers[threadIdx.x], 4);
  __pipeline_commit();
  __syncthreads();
  if (copied[threadIdx.x] == 7) atomicAdd(&in_time, 1);
  __pipeline_wait_prior(0);
}
__global__ void meet() {  // comes to an end where two blocks run at a time
  atomicAdd(&arrived, 1);
  while (atomicAdd(&arrived, 0) < 2) {}
}
int main(int, char** argv) {
  int sevens[64], value;
  cudaDeviceProp device;
  cudaGetDeviceProperties(&device, 0);
  std::printf("%s, %s from %s, last", device.name, NAME, FROM);
  for (int i = 0; i < 4; ++i) {
    who_is_last<<<1, 64>>>();
    cudaMemcpyFromSymbol(&value, last, sizeof value);
    std::printf(" %d", value);
  }
  for (int& seven : sevens) seven = 7;
  cudaMemcpyToSymbol(numbers, sevens, sizeof sevens);
  no_wait<<<1, 64>>>();
  cudaMemcpyFromSymbol(&value, in_time, sizeof value);
  std::printf(", %d copies in time", value);
  meet<<<2, 1>>>();
  std::printf(", met, in %s\n", argv[0]);
}
END
TMPDIR="$work/tmp"
export TMPDIR
expect 1 'simulator (sm_90), nobody from nowhere, last 63 63 63 63, 0 copies in time' --threads 2 options.cu
contains out ", met, in $work/tmp/flash-check."
contains err 'flash check: 2 findings' # the race of four launches is one
expect 1 'simulator (sm_80), it'\''s "me" from a folder, last 0 0 0 0, 64 copies in time, met' --profile sm_80 \
  --order reverse --completion eager --threads 2 '-DNAME="it'\''s \"me\""' '-Ia folder' options.cu
random() { sed 's/.*last \(.*\) in time.*/\1/' out; }
expect 1 'deadlock: no thread' --order random --completion random --seed 1 --threads 1 options.cu
one=$(random)
expect 1 'met' --order random --completion random --seed 2 --threads 2 options.cu
[ "$one" != "$(random)" ] || { failed=1; echo 'the seed changes nothing'; }
case $one in *', 0 copies' | *', 64 copies' | '63 63 63 63,'*) failed=1; echo "nothing is random: $one" ;; esac
[ -z "$(ls -A tmp)" ] || { failed=1; echo 'left behind:'; ls tmp; }
unset TMPDIR

# The host interface, and groups of threads: each figure beside what CUDA's guide says of it.
cat >calls.cu <<'END'
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <unistd.h>
namespace cg = cooperative_groups;
enum { votes, least, most, tiles, tile_number, sent, block_in_cluster, block_in_grid, thread_in_grid, figures };
constexpr unsigned threads = 64, blocks = 8;  // a grid of 2 x 2 x 2

__global__ void __cluster_dims__(2, 1, 1) groups(unsigned (*out)[figures]) {
  const unsigned t = threadIdx.x, all = cg::this_grid().thread_rank();
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  out[all][votes] = tile.ballot(tile.thread_rank() <= tile.meta_group_rank());
  out[all][least] = cg::reduce(tile, 100 + t * 5 % 16, cg::less<unsigned>());
  out[all][most] = cg::reduce(tile, 100 + t * 5 % 16, cg::greater<unsigned>());
  out[all][tiles] = tile.meta_group_size();
  out[all][tile_number] = tile.meta_group_rank();
  out[all][sent] = 0;
  if (t % 3 == 1) out[all][sent] = cg::coalesced_threads().shfl(t, 2);  // 1 4 7 …, 34 37 40 …
  out[all][block_in_cluster] = cg::this_cluster().block_rank();
  out[all][block_in_grid] = cg::this_grid().block_rank();
  out[all][thread_in_grid] = all;
}
__global__ void chosen(int* x) { *x = 5; }
void calls_cuda(void* x) {
  cudaMemset(x, 1, 4);
  *static_cast<int*>(x) += cudaDeviceSynchronize() == cudaErrorNotPermitted;
}

#define EXPECT(what) \
  if (!(what)) std::printf("line %d: %s\n", __LINE__, #what)
int main(int argc, char**) {
  float *x, milliseconds;
  int device = 7;
  EXPECT(cudaSetDevice(0) == cudaSuccess);
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice);
  EXPECT(cudaGetDevice(&device) == cudaSuccess && device == 0);
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidDevice);  // looks
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);     // takes
  EXPECT(cudaPeekAtLastError() == cudaSuccess);
  EXPECT(cudaMalloc(&x, 400) == cudaSuccess);
  EXPECT(cudaFree(x + 4) == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  EXPECT(cudaFree(x) == cudaSuccess);

  cudaEvent_t begin, end;
  EXPECT(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorInvalidResourceHandle);  // not recorded
  cudaEventRecord(begin);
  usleep(20000);
  cudaEventRecord(end);
  EXPECT(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess);
  EXPECT(milliseconds >= 20 && milliseconds < 10000);

  int* y;
  void (*f)(int*) = chosen;
  cudaMallocManaged(&y, sizeof *y);
  if (argc > 9)
    f = nullptr;
  else (*f)<<<1, 1>>>(y);
  EXPECT(*y == 5);

  // What the host's functions may not do; a stream that is gone; the legacy stream while another is captured.
  cudaStream_t stream;
  EXPECT(cudaStreamCreate(&stream) == cudaSuccess);
  EXPECT(cudaLaunchHostFunc(stream, calls_cuda, y) == cudaSuccess && *y == 6);
  EXPECT(cudaGetLastError() == cudaErrorNotPermitted);
  EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  EXPECT(cudaMemset(y, 0, 4) == cudaErrorStreamCaptureImplicit && *y == 6);
  cudaGraph_t graph;
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  EXPECT(cudaStreamDestroy(stream) == cudaSuccess && cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  chosen<<<1, 1, 0, stream>>>(y);
  EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle && *y == 6);
  int registered = 0, *mapped;
  EXPECT(cudaHostRegister(&registered, 4, 0) == cudaSuccess);
  EXPECT(cudaHostGetDevicePointer(&mapped, &registered, 0) == cudaErrorNotSupported);

  unsigned (*out)[figures];
  cudaMallocManaged(&out, threads * blocks * sizeof *out);
  groups<<<dim3(2, 2, 2), threads>>>(out);
  for (unsigned i = 0; i < threads * blocks; ++i) {
    const unsigned t = i % threads, block = i / threads, tile = t / 16;
    EXPECT(out[i][votes] == (2u << tile) - 1);
    EXPECT(out[i][least] == 100 && out[i][most] == 115);
    EXPECT(out[i][tiles] == 4 && out[i][tile_number] == tile);
    EXPECT(out[i][sent] == (t % 3 != 1 ? 0 : t < 32 ? 7 : 40));
    EXPECT(out[i][block_in_cluster] == block % 2);
    EXPECT(out[i][block_in_grid] == block && out[i][thread_in_grid] == i);
  }
  std::printf("all asked\n");
}
END
expect 1 'call: cudaFree: the pointer is not one that cudaMalloc gave' calls.cu
contains err 'call: cudaMemset: a host function makes a call of CUDA'
contains err 'call: the launch of chosen: the stream was destroyed, or never made'
contains err 'call: cudaHostGetDevicePointer: kernels cannot use memory of cudaHostRegister here'
contains err 'flash check: 4 findings'
[ "$(cat out)" = 'all asked' ] || { failed=1; cat out; }

# When asynchronous copies arrive: a wait that is too short reads NaN, or the right value by luck.
programs=$root/tests/simt/programs
pipeline=$programs/pipeline.cu
expect 1 'pipeline: right' --completion eager "$pipeline" -- defect
expect 1 'pipeline: WRONG' --completion late "$pipeline" -- defect

# Sums of floats by atomics: legal, unless their order is to be fixed.
dot=$programs/dot_product.cu
expect 1 'nondeterministic: additions to result[0] (8 bytes) in no fixed order' --deterministic "$dot"

# What the host may ask, graphs, groups and words, each beside what CUDA's guide says; streams, and two without order.
for name in host_calls graph groups words streams; do
  expect 0 "$name: right" "$programs/$name.cu"
done
expect 1 'race: read after write of x[' "$programs/streams.cu" -- defect
contains err 'remedy: the launches are in streams without order: record an event behind the earlier one'
contains err 'flash check: 1 finding'
cat >free.cu <<'END'
__global__ void set(int* x, int value) { x[threadIdx.x] = value; }
int main(int argc, char**) {
  int* x;
  cudaStream_t blocking, free;
  cudaStreamCreate(&blocking), cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking);
  cudaMalloc(&x, 128);
  for (int i = 0; i < 3; ++i) {
    set<<<2, 32>>>(x, i);  // both blocks: another race
    set<<<1, 32, 0, argc > 1 ? free : blocking>>>(x, i + 1);  // the one waits for nobody, the other for the first
    cudaDeviceSynchronize();
  }
}
END
expect 1 'flash check: 1 finding' free.cu
expect 1 'flash check: 2 findings' free.cu -- free
contains err 'wait for its stream'

# One mistake is one finding: a row of statements that rely on lockstep, a counter without an atomic.
expect 1 'flash check: 1 finding' "$programs/lockstep.cu" -- defect
contains err 'lockstep assumed: volatile'
contains err '  also at: lockstep.cu:2'
contains err '  seen '
cat >counter.cu <<'END'
__global__ void count(int* counter, int* other) {
  ++*counter;
  other[0] = threadIdx.x;  // another mistake
}
int main() {
  int* x;
  cudaMalloc(&x, 8);
  cudaMemset(x, 0, 8);
  for (int i = 0; i < 2; ++i) count<<<1, 64>>>(x, x + 1);
}
END
expect 1 'flash check: 2 findings' counter.cu
contains err '  also: '
[ "$(grep -c '^  also' err)" = 1 ] || { failed=1; echo 'one finding has several kinds of races, the other has one'; }

# A sample of a grid's blocks: 0, 21, 42 and 63 of 64.
cat >sample.cu <<'END'
__global__ void write(float* x, const float* unwritten, int wrong) {
  if (threadIdx.x == 0) x[64 + blockIdx.x] = 1;
  __syncthreads();
  x[blockIdx.x] = blockIdx.x == wrong ? unwritten[threadIdx.x] : x[64 + blockIdx.x];
}
__global__ void read(const float* x, float* y) { y[blockIdx.x] = x[(blockIdx.x + 1) % 64]; }
int main(int argc, char** argv) {
  float *x, *y, *z;
  cudaMalloc(&x, 128 * sizeof *x);
  cudaMalloc(&y, 64 * sizeof *y);
  cudaMalloc(&z, sizeof *z);
  write<<<64, 1>>>(x, z, argc > 1 ? atoi(argv[1]) : -1);
  read<<<64, 1>>>(x, y);
}
END
expect 0 'flash check: no findings' sample.cu
case $(cat err) in *'a sample'*) failed=1; echo 'all blocks were checked' ;; esac
expect 0 '  a sample: 4 blocks were checked' --sample 4 sample.cu
contains err '  x                   load                  16           4'
expect 1 'uninitialised: read of z[0]' --sample 4 sample.cu -- 42
expect 0 'flash check: no findings' --sample 4 sample.cu -- 41
expect 1 'uninitialised: read of z[0]' sample.cu -- 41
expect 1 '"checked_blocks": 4' --sample 4 --json sample.cu -- 0
expect 2 "--sample is 'all'; expected a number" --sample all sample.cu

# What waits for another thread in a block outside of the sample: through a flag of shared memory, and of global memory.
# What it writes there by volatile stores has been written for the blocks of the sample, too.
cat >waits.cu <<'END'
__global__ void pass_on(volatile int* turn, volatile int* said, int* sum) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 32) flag = 1;
  while (threadIdx.x == 0 && flag == 0) {}
  if (threadIdx.x != 0) return;
  while (*turn != blockIdx.x) {}
  said[blockIdx.x] = blockIdx.x;
  atomicAdd(sum, blockIdx.x > 0 ? said[blockIdx.x - 1] : 15);
  __threadfence();
  *turn = blockIdx.x + 1;
}
int main() {
  int *turn, *said, *sum, result = 0;
  cudaMalloc(&turn, sizeof *turn), cudaMalloc(&said, 16 * sizeof *said), cudaMalloc(&sum, sizeof *sum);
  cudaMemset(turn, 0, sizeof *turn), cudaMemset(sum, 0, sizeof *sum);
  pass_on<<<16, 64>>>(turn, said, sum);
  cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost);
  return result != 120;
}
END
expect 0 'flash check: no findings' --sample 2 waits.cu

# A cooperative launch has as many blocks as the occupancy and the multiprocessors say, and not one more.
cat >together.cu <<'END'
#include <cooperative_groups.h>
__global__ void meet(int* arrived, int* seen) {
  extern __shared__ char much[];
  if (threadIdx.x == 0) atomicAdd(arrived, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0 && blockIdx.x == 0) *seen = *arrived;
}
int main(int argc, char**) {
  const int bytes = 150 * 1024;
  int blocks, processors, result = 0, *arrived, *seen;
  cudaFuncSetAttribute(meet, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, 32, bytes);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  cudaMalloc(&arrived, sizeof *arrived), cudaMalloc(&seen, sizeof *seen);
  cudaMemset(arrived, 0, sizeof *arrived);
  void* arguments[] = {&arrived, &seen};
  cudaLaunchCooperativeKernel(meet, blocks * processors + argc - 1, 32, arguments, bytes, nullptr);
  cudaMemcpy(&result, seen, sizeof result, cudaMemcpyDeviceToHost);
  return result != blocks * processors;
}
END
expect 0 'flash check: no findings' together.cu
expect 0 'flash check: no findings' --profile sm_80 together.cu
expect 1 'blocks of a cooperative launch is 133; expected at most the 132 that fit at a time' together.cu -- more

# A signal ends the program, too, and nothing is left; what a run left that was killed, the next one sweeps.
TMPDIR="$work/tmp"
export TMPDIR
mkdir "$TMPDIR/flash-check.99999999.abcdef" "$TMPDIR/flash-check.of-somebody"
expect 0 'no findings' --sim sample.cu
[ "$(ls "$TMPDIR")" = flash-check.of-somebody ] || { failed=1; echo 'not swept:'; ls "$TMPDIR"; }
rmdir "$TMPDIR/flash-check.of-somebody"
cat >sleeps.cu <<'END'
#include <unistd.h>
int main() {
  FILE* ready = fopen("ready", "w");
  fprintf(ready, "%d\n", getpid());
  fclose(ready);
  sleep(600);
}
END
sh "$check" "$settings" sleeps.cu >out 2>err </dev/null &
running=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -s ready ] || sleep 3; done
kill "$running" || cat out err
status=0
wait "$running" || status=$?
[ "$status" = 143 ] || { failed=1; echo "ended by SIGTERM with $status"; }
[ -z "$(ls -A "$TMPDIR")" ] || { failed=1; echo 'SIGTERM left behind:'; ls "$TMPDIR"; }
! kill "$(cat ready)" 2>/dev/null || { failed=1; echo 'SIGTERM left the program running'; }
unset TMPDIR

# The machine's functions are its own: of those that the program has, too, as std::string's, none is instrumented.
cat >strings.cu <<'END'
#include <cstdio>
#include <string>
#include <vector>
__global__ void set(int* x) { *x = 1; }
int main(int n, char** words) {
  std::vector<std::string> all(words, words + n);
  std::string line = "a" + std::to_string(n) + all[0];
  line.replace(0, 1, all[0]).append("b");
  int* x;
  cudaMalloc(&x, 4);
  set<<<1, 1>>>(x);
  std::puts(line.c_str());
}
END
expect 0 '' -o strings strings.cu
library=$(sed -n "s/^LIBRARY='\(.*\)'/\1/p" "$settings" | tail -n 1)
nm strings | awk '$2 == "W" { print $3 }' >of_program
nm "$library" 2>/dev/null | awk '$2 == "W" { print $3 }' | sort -u | grep -Fxf of_program >shared_names
objdump -d --no-show-raw-insn strings | awk '
  FILENAME == "shared_names" { shared[$1] = 1; next }
  /^[0-9a-f]+ <.*>:$/ { name = substr($2, 2, length($2) - 3) }
  /call.*<__tsan_/ && name in shared { print "instrumented, and the machine calls it: " name; found = 1 }
  END { exit found }' shared_names - || failed=1
[ -s shared_names ] || { failed=1; echo 'the program and the machine share no function'; }

# What does not compile is bad input.
printf '__global__ void k() {\n  undeclared = 1;\n}\nint main() {}\n' >a.cu
expect 2 'a.cu:2:3: error' a.cu
contains err 'flash check: a.cu does not compile'
printf '#if __CUDA_ARCH__ == 900\nint main() {}\n#endif\n' >a.cu
expect 2 'a.cu:2: error: __CUDA_ARCH__ decides what this is on the host' a.cu
expect 2 'the program does not link' --arch sm_80 a.cu
expect 0 'no findings' --arch sm_90 a.cu
printf 'texture<float> t;\n__global__ void k(float* x, cudaTextureObject_t t) {\n  x[0] = 1;\n}\nint main() {}\n' >a.cu
expect 2 'a.cu:2: error: cudaTextureObject_t: textures are not simulated; read the array itself' a.cu
printf 'int main() {\n  cudaGraph_t graph;\n  cudaGraphCreate(&graph, 0);\n}\n' >a.cu
expect 2 'a.cu:3: error: cudaGraphCreate: graphs are made by capture here; write cudaStreamBeginCapture' a.cu
printf 'void elsewhere();\nint main() { elsewhere(); }\n' >a.cu
expect 2 'flash check: the program does not link' a.cu

[ "$failed" = 0 ] && echo 'check_test: every answer is as promised'
exit "$failed"
