#!/bin/sh
# cuda_test.sh: for which architectures a kernel is compiled (cmake/cuda.cmake), whatever GPU the build is for.
# Needs neither nvcc nor a GPU.
# sh tests/cuda_test.sh
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
cat >"$work/asked.cmake" <<END
include("$root/cmake/cuda.cmake")
flash_architectures(found \${LOWEST})
message("found: \${found}.")
END

# expect LOWEST ARCHITECTURES FOUND
expect() {
  out=$(cmake -DFLASH_CUDA=OFF "-DLOWEST=$1" "-DCMAKE_CUDA_ARCHITECTURES=$2" -P "$work/asked.cmake" 2>&1)
  case $out in
    *"found: $3."*) ;;
    *) failed=1; printf 'of %s for capability %s: %s; want %s\n' "$2" "$1" "$out" "$3" ;;
  esac
}
expect 80 '75;80;90' '80;90'
expect 80 '75;90a' 90a
expect 80 86-real 86-real
expect 80 120 120
expect 80 75 80 # a T4: no target may be without
expect 80 native native

[ "$failed" = 0 ] && echo 'cuda_test: each kernel has its architectures'
exit "$failed"
