#!/bin/sh
# check_test.sh: ./flash check: its exit status, what it prints and where, its options, and its refusals.
# The programs of tests/programs have a test of their own: programs_test.sh.
# sh tests/check_test.sh SETTINGS, which the build writes
set -eu
settings=$1
check=$(cd "$(dirname "$0")/.." && pwd)/sim/cuda/check.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0

# expect STATUS TEXT ARGUMENT…: check ARGUMENT… exits with STATUS and prints TEXT (on stdout or stderr).
expect() {
  want=$1 text=$2 status=0
  shift 2
  sh "$check" "$settings" "$@" >out 2>err </dev/null || status=$?
  case $status:$(cat out err) in
    "$want":*"$text"*) ;;
    *)
      failed=1
      printf 'check %s: exit %s, want %s and "%s":\n' "$*" "$status" "$want" "$text"
      cat out err
      ;;
  esac
}

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
expect 2 '--seed is without a value; expected a number' --seed
expect 2 "--seed is '-1'; expected a number of at most 17 digits" --seed -1 a.cu
expect 2 "--profile is 'sm_70'; expected sm_80 or sm_90" --profile sm_70 a.cu
expect 2 "flag '--fast' is unknown" --fast a.cu
touch a.cu
expect 2 "'b.cu' is one file too many" a.cu b.cu
expect 0 'usage: ./flash check' --help

# The book's page on findings quotes a program and what is found in it.
book=$(dirname "$check")/../../docs/book
expect 1 'flash check: 3 findings' "$book/reverse.cu"
# quoted LANGUAGE: the page's block of code in that language, without its fences.
quoted() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/!p;}" "$book/reading-a-finding.md"; }
case $(cat out err) in
  *"$(quoted text)"*) ;;
  *) failed=1; echo 'the page quotes other findings than'; cat out err ;;
esac
case $(cat "$book/reverse.cu") in *"$(quoted cpp)"*) ;; *) failed=1; echo 'the page quotes another kernel' ;; esac
[ "$(quoted text | wc -l)" -gt 10 ] || { failed=1; echo 'the page quotes no findings'; }

# One program for all the rest: what it does hangs on its argument, so that it is compiled seldom.
cat >'a program.cu' <<'END'
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
    return cudaMemcpy2D(rows, 32, host, 40, 40, 10, cudaMemcpyHostToDevice) == cudaErrorInvalidValue ? 0 : 8;
  }
  if (std::strcmp(what, "managed") == 0) {
    cudaMallocManaged(&x, 8);
    return x[1] = 0;
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
  write  a program.cu:8' race
[ "$(cat findings)" = 1 ] || { failed=1; echo 'one finding was not counted as one'; }
run 0 'out of bounds: read of x[100] (4 bytes); x has 100 elements
  read  a program.cu:13' over
run 0 'call: the launch of scale: block.x is 2048; expected 1 to 1024; use a smaller block and more blocks
  calls  a program.cu:27' configuration
run 0 'call: cudaMemcpy: x has 400 bytes; the copy reaches byte 404
  calls  a program.cu:32' copy
run 0 'call: cudaMemcpy: cudaMemcpyDeviceToHost, but the source is memory of the host' direction
run 0 'host access: host code reads x[7], which is device memory
  reads  a program.cu:36
  remedy: copy it with cudaMemcpy, or allocate it with cudaMallocManaged' host
contains err 'host access: host code reads last[0]'
run 0 'call: cudaMemcpy2D: a row is wider than its pitch' rows
run 0 '' managed
[ "$(cat findings)" = 0 ] || { failed=1; echo 'managed memory is not the host'\''s'; }
run 0 'call: cudaFree: the pointer is not one that cudaMalloc gave, or was freed before
  calls  a program.cu:60' twice
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

# What does not compile is bad input.
printf '__global__ void k() {\n  undeclared = 1;\n}\nint main() {}\n' >a.cu
expect 2 'a.cu:2:3: error' a.cu
contains err 'flash check: a.cu does not compile'
printf 'void elsewhere();\nint main() { elsewhere(); }\n' >a.cu
expect 2 'flash check: a.cu does not link' a.cu

[ "$failed" = 0 ] && echo 'check_test: every answer is as promised'
exit "$failed"
