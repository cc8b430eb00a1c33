#!/bin/sh
# example_test.sh: what docs/library.md shows compiles: example.c by the very line of the page, and the page's own
# example. The program is run too; without a GPU it ends with 77.
# sh tests/library/example_test.sh BUILD   (a built tree; it is installed into a folder that is deleted afterwards)
set -eu
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
page=$root/docs/library.md
PATH=$PATH:/usr/local/cuda/bin
for tool in nvcc pkg-config; do
  command -v "$tool" > /dev/null || { echo "skipped: no $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" > "$work/log" || { cat "$work/log"; exit 1; }
library=$(dirname "$(find "$work/prefix" -name libflashphases.so)")
export PKG_CONFIG_PATH="$library/pkgconfig" LD_LIBRARY_PATH="$library"
cd "$(dirname "$(find "$work/prefix" -name example.c)")"

line=$(sed -n 's/^    \(nvcc .*example\.c.*\)/\1/p' "$page")
[ -n "$line" ] || { echo "$page: no line that compiles example.c"; exit 1; }
grep -qF "Use: $line" example.c || { echo "example.c shows another line than $page: $line"; exit 1; }
sh -ec "$line"
status=0
./example 2>&1 || status=$?
[ "$status" = 0 ] || [ "$status" = 77 ] || { echo "the example ended with $status"; exit 1; }

# The page's own example: its first indented block with flashphases_forward_args, as the body of a function.
{
  printf '#include <cuda_runtime_api.h>\n#include <flashphases.h>\n#include <stdio.h>\n'
  echo 'void call(void* q, int64_t B, int64_t H, int64_t Sq, int64_t Sk, int64_t D, cudaStream_t stream) {'
  awk '/^    flashphases_forward_args/ { inside = 1 } inside && !/^    / { exit } inside' "$page" | grep -v '^ *…'
  echo '}'
} > page.c
grep -q flashphases_workspace page.c || { echo "$page: the example asks for no workspace"; exit 1; }
# shellcheck disable=SC2046 # words
nvcc -Werror all-warnings -Xcompiler -Wall,-Wextra -c -o page.o page.c $(pkg-config --cflags libflashphases)
