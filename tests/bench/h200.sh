#!/bin/sh
# h200.sh: everything in this folder that needs a GPU, in one go: builds, verifies and times the phases and torch's
# attention on the same sweeps, reads the hardware's counters. About four minutes on an H200 with 16 cores.
# tests/bench/h200.sh OUTPUT_DIRECTORY [ARCHITECTURE]   then copy the *.json into docs/results, run flash-tables --write
# Where Eigen, doctest and xtensor are not installed, CMAKE_PREFIX_PATH says where they are.
set -eu
out=${1:?usage: tests/bench/h200.sh OUTPUT_DIRECTORY [ARCHITECTURE]}
mkdir -p "$out"
cd "$(dirname "$0")/../.."
build=${FLASH_BUILD:-build}/gpu-bench
generator=$(command -v ninja > /dev/null && echo Ninja || echo "Unix Makefiles")

cmake -S . -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DFLASH_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="${2:-90}" \
  > "$out/configure.log" 2>&1 || { tail -n 20 "$out/configure.log" >&2; exit 1; }
cmake --build "$build" -j "$(nproc)" --target flash-gpu-bench flash-sectors > "$out/build.log" 2>&1 ||
  { grep -m 5 -A 5 error "$out/build.log" >&2; exit 1; }

# Each part that fails leaves its file out and the others in; the exit status tells.
status=0
part() {
  began=$(date +%s)
  name=$1
  shift
  "$@" > "$out/$name.log" 2>&1 || { status=1; echo "h200.sh: $name failed" >&2; }
  echo "== $name: $(($(date +%s) - began)) s"
  tail -n 5 "$out/$name.log"
}
part phases "$build/bin/flash-gpu-bench" --out "$out/h200-phases.json"
part torch python3 tests/bench/peers_h200.py "$out/h200-torch.json"
part sectors sh tests/bench/ncu_phases.sh "$build/bin/flash-sectors" "$out"
ls -l "$out"
exit "$status"
