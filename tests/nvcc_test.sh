#!/bin/sh
# nvcc_test.sh: ./flash check takes what a program's own build gives nvcc: its options, several files, headers beside
# them, __CUDA_ARCH__; what is not there is refused in one line. Each idiom is one that public programs have.
# sh tests/nvcc_test.sh SETTINGS, which the build writes
set -eu
# shellcheck source=tests/check_lib.sh
. "$(dirname "$0")/check_lib.sh"

# refused TEXT ARGUMENT…: in one line, and the line of check itself.
refused() {
  expect 2 "$@"
  [ "$(wc -l <err)" = 2 ] || { failed=1; printf 'check %s: not one line:\n' "$*"; cat err; }
}

# A program of three files: the host's part in C++, whose inline assembly is its own business; kernels; headers beside
# them and in a folder. What it prints hangs on each option.
mkdir 'a folder'
echo '#define FROM "a folder"' >'a folder/from.h'
cat >shared.h <<'END'
#pragma once
int launched(int* x);
END
cat >main.cpp <<'END'
#include <cuda_runtime.h>
#include <from.h>
#include <cstdio>
#include "shared.h"
#if defined(__CUDACC__) || defined(__CUDA_ARCH__)
#error this file is compiled by the host's compiler
#endif
int main() {
  int host = 1, *x;
  __asm__("addl $1, %0" : "+r"(host));
  cudaMalloc(&x, sizeof *x);
  const int arch = launched(x);
  std::printf("%d of %s, %ld, arch %d, %d\n", host, FROM, __cplusplus, arch, NUMBER);
}
END
cat >kernels.cu <<'END'
#include "shared.h"
#ifndef __CUDACC__
#error nvcc defines it
#endif
// __CUDA_ARCH__ in a comment says nothing.
#if 0
int there_is_no = __CUDA_ARCH__;
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 300
#error older than any
#endif
#if __CUDA_ARCH__ >= 800
#define BLOCKS 2
#else
#define BLOCKS 1
#endif
template <class T>
__device__ T arch_of() {
#ifdef __CUDA_ARCH__
  return __CUDA_ARCH__;
#else
  return 0;
#endif
}
__global__ void __launch_bounds__(1024, BLOCKS) set(int* x) { *x = arch_of<int>(); }
int launched(int* x) {
  int arch;
  void* arguments[] = {&x};
  cudaFuncSetAttribute((void*)set, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024);
  cudaLaunchKernel((void*)set, dim3(1), dim3(1), arguments, 0, 0);
  cudaLaunchCooperativeKernel((const void *)set, dim3(1), dim3(1), arguments);
  cudaMemcpy(&arch, x, sizeof arch, cudaMemcpyDeviceToHost);
  return arch;
}
END
expect 0 '2 of a folder, 201703, arch 900, 7' -O3 main.cpp kernels.cu -I 'a folder' -D NUMBER=7
expect 0 '2 of a folder, 202002, arch 800, 8' -std=c++20 -arch=sm_80 -DNUMBER=8 '-Ia folder' kernels.cu main.cpp
expect 0 'arch 750, 9' -std c++17 -gencode arch=compute_75,code=sm_75 -Xcompiler -DNUMBER=9,-O2 '-Ia folder' \
  kernels.cu main.cpp
expect 2 'the program does not link' '-Ia folder' -DNUMBER=1 main.cpp

# Every option that docs/check.md lists compiles a program, and so does every header.
echo '__global__ void k() {} int main() {}' >a.cu
# shellcheck disable=SC2016 # the marks of a word in Markdown
row() { sed -n "s/^| $1 | \(.*\) |\$/\1/p" "$root/docs/check.md" | grep -o '`[^`]*`' | tr -d '`'; }
row "nvcc's options" >options
[ "$(wc -l <options)" -gt 15 ] || { failed=1; echo 'the table of docs/check.md lists no options'; }
# shellcheck disable=SC2046
expect 0 '' -o a $(cat options) a.cu
row headers | sed 's/.*/#include &/' >headers.cu
[ "$(wc -l <headers.cu)" -gt 12 ] || { failed=1; echo 'the table of docs/check.md lists no headers'; }
echo 'int main() {}' >>headers.cu
expect 0 '' -o a headers.cu
expect 0 '' -o a -std=c++20 headers.cu
expect 2 "flag '-ptx' makes no program" -ptx a.cu
expect 2 "flag '-Xcompiler --param=x' is unknown" -Xcompiler --param=x a.cu
touch x.c
expect 2 'x.c is C' x.c

# Headers: an installed CUDA is not seen, wherever its folder is named; what only it has is refused by name.
mkdir -p cuda/include/thrust cuda/include/crt
for header in cuda_runtime.h driver_types.h cuda_fp16.h thrust/sort.h texture_types.h; do
  echo '#error an installed header' >"cuda/include/$header"
done
printf '#include <cuda_fp16.h>\n__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n' >own.cu
expect 0 'no findings' -I cuda/include own.cu
expect 0 'no findings' -isystem cuda/include own.cu
CPATH=$work/cuda/include
export CPATH
expect 0 'no findings' own.cu
unset CPATH
printf '// one\n#include <thrust/sort.h>\nint main() {}\n' >library.cu
refused 'library.cu:2: error: <thrust/sort.h> is not there: Thrust is not simulated' library.cu
refused 'library.cu:2: error: <thrust/sort.h> is not there: Thrust is not simulated' -Icuda/include library.cu
# By a path nothing keeps it out of the way; it is refused all the same, where it is right C++ too.
printf '#include "cuda/include/texture_types.h"\nint main() {}\n' >library.cu
refused 'library.cu:1: error: <texture_types.h> is not there: the headers of an installed CUDA are not used' library.cu
echo >cuda/include/texture_types.h
refused 'library.cu:1: error: <texture_types.h> is not there: the headers of an installed CUDA are not used' library.cu
for line in cub/cub.cuh:CUB curand_kernel.h:cuRAND cufft.h:cuFFT npp.h:NPP cuda/ptx:libcu++ torch/extension.h:PyTorch \
  helper_cuda.h:samples; do
  printf '#include <%s>\nint main() {}\n' "${line%:*}" >library.cu
  refused "library.cu:1: error: <${line%:*}> is not there: " library.cu
  case $(head -n 1 err) in *"${line#*:}"*) ;; *) failed=1; echo "$line is not named"; cat err ;; esac
done

# Inline assembly: what is not known is refused by its name, an operand too; host code's is its own business.
unknown() {
  printf '__global__ void k(int* x) {\n  asm volatile(%s);\n}\nint main() {}\n' "$1" >assembly.cu
  refused "assembly.cu:2: error: inline assembly: $2 is not simulated; write the operation in CUDA C++" assembly.cu
}
unknown '"tanh.approx.f32 %0, %1;" : "=f"(x[0]) : "f"(x[1])' tanh.approx.f32
unknown '"mov.u32 %0, 1;\n sad.u32 %0, %0, %0, %0;" : "+r"(*x)' sad.u32
unknown '"mov.u32 %0, %%smid;" : "=r"(*x)' 'the operand %%smid'
unknown '"mov.u32 %0, %2;" : "=r"(*x) : "r"(1)' 'the operand %2'
unknown '"mov.u32 %0, lost;" : "=r"(*x)' 'the operand lost'
unknown '"mov.u32 %0, %1;" : "=r"(*x) : "m"(*x)' 'the operand "m"'
unknown '"{ .reg .b128 wide; }"' '.reg .b128 wide'
unknown '"{ .reg .b32 many<4>; }"' '.reg .b32 many<4>'
printf '__global__ void k(int* x) {\n  asm("mov.u32 %%[to], 1;" : [to] "=r"(*x));\n}\nint main() {}\n' >assembly.cu
refused 'assembly.cu:2: error: inline assembly: the operand [to] has a name, which nvcc refuses; write %0, ' assembly.cu

# __CUDA_ARCH__ may not decide about host code, which has it not.
cat >choice.cu <<'END'
struct Number {
  float x;
  __host__ __device__ float twice() const {
#ifdef __CUDA_ARCH__
    return __fmul_rn(x, 2);
#else
    return x + x;
#endif
  }
};
int main() { return Number{0}.twice() != 0; }
END
refused 'choice.cu:3: error: __CUDA_ARCH__ decides what this is on the host' choice.cu
expect 0 'no findings' --arch sm_90 choice.cu
printf '#ifndef __CUDA_ARCH__\nint main() {}\n#endif\n' >choice.cu
refused 'choice.cu:2: error: __CUDA_ARCH__ decides what this is on the host' choice.cu

# NVIDIA's helper_cuda.h asks by these guards whether CUDA is there, and in what mode the device is; helper_math.h
# defines what it thinks g++ lacks, unless nvcc compiles it.
cat >helpers.cu <<'END'
#ifdef __DRIVER_TYPES_H__
static const char* name_of(cudaError_t error) { return cudaGetErrorName(error); }
#endif
#ifndef __CUDACC__
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline int max(int a, int b) { return a > b ? a : b; }
#endif
inline __host__ __device__ float3 operator+(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
inline __host__ __device__ void operator+=(float4& a, float4 b) { a.x += b.x, a.w += b.w; }
inline __host__ __device__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
int main() {
#ifdef __CUDA_RUNTIME_H__
  int mode = -1, clock = 0;
  cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, 0);
  cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0);
  if (mode != cudaComputeModeProhibited && clock > 0)
    printf("%s %g %d\n", name_of(cudaSuccess), dot(make_float3(1, 2, 3) + make_float3(1, 1, 1), make_float3(1, 1, 1)),
           max(2, 3));
#endif
}
END
expect 0 'cudaSuccess 9 3' helpers.cu

# Of cuBLAS what is no product of matrices has its name, so that what stands beside it in a file runs.
cat >library.cu <<'END'
#include <cublas_v2.h>
int main(int argc, char**) {
  cublasHandle_t handle;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  float x = 1;
  return argc > 1 && cublasSdot(handle, 1, &x, 1, &x, 1, &x) != CUBLAS_STATUS_SUCCESS;
}
END
expect 0 'no findings' library.cu
expect 3 'flash check: cublasSdot of cuBLAS is not simulated; call a kernel of your own' library.cu -- dot

[ "$failed" = 0 ] && echo 'nvcc_test: what nvcc takes is taken'
exit "$failed"
