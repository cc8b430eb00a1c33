#!/bin/sh
# own_test.sh: phase 28's program for a modifier of one's own under ./flash check: right as it is; and where the struct
# says something else than the loop on the CPU, it says so.
# sh tests/own_test.sh SETTINGS, as the build writes them
set -eu
# shellcheck source=tests/check_lib.sh
. "$(dirname "$0")/check_lib.sh"

own=$root/phases/28-modifiers/own.cu
expect 0 'the kernel and the loop agree' -std=c++20 "$own"
sed 's/return {0.25f};/return {0.5f};/' "$own" >steeper.cu
if cmp -s "$own" steeper.cu; then
  echo 'own.cu: no slope to change'
  failed=1
fi
expect 3 'they differ' -std=c++20 steeper.cu
exit "$failed"
