#!/bin/sh
# ptxas_test.sh: ptxas.sh finds wgmma that is serialised, spills that its table does not name, a table that allows too
# much, and with cuobjdump what does not belong into a loop: a report that cannot fail would be worth nothing. Needs
# nvcc.
# sh tests/ptxas_test.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect STATUS TEXT ARCHITECTURE FILE: what ptxas.sh makes of the file, with the table on stdin.
expect() {
  cat >"$work/table"
  status=0
  sh "$here/ptxas.sh" "$3" "$4" "$work/table" >"$work/out" 2>&1 || status=$?
  if [ "$status" = 77 ]; then # there is no nvcc
    cat "$work/out"
    exit 77
  fi
  if [ "$status" != "$1" ] || ! grep -q "$2" "$work/out"; then
    failed=1
    printf 'expected status %s and "%s", got status %s and:\n' "$1" "$2" "$status"
    cat "$work/out"
  fi
}

# Products of a warpgroup; with TOUCHED an accumulator is read and written before it is waited for.
cat >"$work/products.cu" <<'END_OF_FILE'
#include "gpu/hopper.cuh"
namespace flash::on_gpu {
__global__ void products(float* out, int tiles) {
  extern __shared__ __align__(1024) std::uint16_t panel[];
  float d[32] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    wgmma_fence();
    wgmma_m64nNk16<__half>(d, matrix_descriptor(panel), matrix_descriptor(panel), true);
    wgmma_commit();
#ifdef TOUCHED
    if (TOUCHED) d[0] *= out[0];
#endif
    wgmma_wait<0>(d);
  }
  for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = d[i];
}
}  // namespace flash::on_gpu
END_OF_FILE
{ echo '#define TOUCHED tile > 3'; cat "$work/products.cu"; } >"$work/touched.cu"
{ echo '#define TOUCHED true'; cat "$work/products.cu"; } >"$work/waits.cu"
expect 0 'ptxas: 1 kernels' sm_90a "$work/products.cu" </dev/null
expect 1 'wgmma.mma_async instructions are serialized' sm_90a "$work/touched.cu" </dev/null
expect 1 'warpgroup.wait is injected' sm_90a "$work/waits.cu" </dev/null

# Where the panel lies is read, and might differ between lanes; there are more numbers than registers; there is no loop.
sed 's/int tiles) {/int tiles) { const int at = int(out[threadIdx.x \/ 999]) * 1024;/
     s/matrix_descriptor(panel)/matrix_descriptor(panel + at)/g' "$work/products.cu" >"$work/lanes.cu"
sed 's/__global__ void/__global__ void __launch_bounds__(1024)/
     s/int tiles) {/int tiles) { float a[128]; for (int i = 0; i < 128; ++i) a[i] = out[i * 999 + threadIdx.x];/
     s/wgmma_wait<0>(d);/& for (int i = 0; i < 128; ++i) a[i] = a[i] * a[i] + d[i % 32];/
     s/= d\[i\];/= d[i] + a[i] + a[i + 32] + a[i + 64] + a[i + 96];/' "$work/products.cu" >"$work/crowded.cu"
sed 's/for (int tile = 0; tile < tiles; ++tile)/if (tiles > 0)/' "$work/products.cu" >"$work/straight.cu"
sh "$here/ptxas.sh" sm_90a "$work/products.cu" /dev/null >"$work/out"
if grep -q 'loops: [1-9][0-9]* loops with wgmma of 1 kernels' "$work/out"; then
  expect 1 "copies lanes' registers to the warp's" sm_90a "$work/lanes.cu" </dev/null
  expect 1 'touches local memory' sm_90a "$work/crowded.cu" </dev/null
  expect 1 'no loop with wgmma was found' sm_90a "$work/straight.cu" </dev/null
else
  expect 0 'loops: not looked at' sm_90a "$work/products.cu" </dev/null
fi

# 100 numbers in 32 registers.
cat >"$work/spills.cu" <<'END_OF_FILE'
__global__ void __launch_bounds__(1024, 2) spills(float* x) {
  float a[100];
#pragma unroll
  for (int i = 0; i < 100; ++i) a[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 100; ++i) x[(99 - i) * 1024 + threadIdx.x] = a[i];
}
END_OF_FILE
expect 1 'spills: spills [1-9][0-9]* bytes .* says 0 and 0; spare registers' sm_80 "$work/spills.cu" </dev/null
bytes=$(sed -n 's/.*spills \([0-9]*\) bytes and loads \([0-9]*\);.*/\1 \2/p' "$work/out")
expect 0 'spills as in the table' sm_80 "$work/spills.cu" <<END_OF_TABLE
spills $bytes
END_OF_TABLE
expect 1 'lower the table' sm_80 "$work/spills.cu" <<END_OF_TABLE
spills ${bytes% *}0 ${bytes#* }0
END_OF_TABLE
expect 1 'gone: is not compiled; remove its line' sm_80 "$work/spills.cu" <<END_OF_TABLE
spills $bytes
gone 4 4
END_OF_TABLE
expect 0 'of CUDA 1.0; this is' sm_80 "$work/spills.cu" <<'END_OF_TABLE'
# What ptxas of CUDA 1.0 spills
END_OF_TABLE
echo '__global__ void nothing( {' >"$work/wrong.cu"
expect 1 'nvcc failed' sm_80 "$work/wrong.cu" </dev/null
echo 'int nothing;' >"$work/empty.cu"
expect 1 'ptxas reported no kernel' sm_80 "$work/empty.cu" </dev/null
[ "$failed" = 0 ] && echo "ptxas_test: every fault was found"
exit "$failed"
