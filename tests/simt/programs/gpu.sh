#!/bin/sh
# gpu.sh: compiles the programs of this folder with nvcc, runs them on the GPU, and says which are right.
# The same files are tests of the simulator (tests/programs_test.sh); here they show that they are CUDA.
# sh tests/simt/programs/gpu.sh [nvcc options]: for instance -arch=sm_90; --compile-only where there is no GPU
set -eu
folder=$(dirname "$(readlink -f "$0")")
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
run=yes
if [ "${1:-}" = --compile-only ]; then
  run=no
  shift
fi
[ $# -gt 0 ] || set -- -arch=native
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for file in "$folder"/*.cu; do
  name=$(basename "$file" .cu)
  status=pass
  (
    # Of an architecture whose name ends in an a, -arch=native has not all: such a file says so in its head.
    head=$(sed -n '/^#include/q;p' "$file")
    case $head in *code=sm_90a*) set -- -gencode=arch=compute_90a,code=sm_90a ;; esac
    case $head in *-lcublas*) set -- "$@" -lcublas ;; esac
    "$nvcc" -std=c++20 "$@" -o "$work/$name" "$file" >"$work/out" 2>&1
  ) || status='FAIL: does not compile'
  if [ "$status" = pass ] && [ "$run" = yes ]; then "$work/$name" >"$work/out" 2>&1 || status=FAIL; fi
  [ "$status" = pass ] || failed=1
  printf '%-20s %s\n' "$name" "$status"
  [ "$status" = pass ] || cat "$work/out"
done
exit "$failed"
