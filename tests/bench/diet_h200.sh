#!/bin/sh
# diet_h200.sh: the steps of phase 13 on a GPU: builds, tests and times them. Some three minutes on an H200 with 16
# cores, of which the GPU works about one. Then copy the *.json into docs/results and run flash-tables --write.
# tests/bench/diet_h200.sh OUTPUT_DIRECTORY [ARCHITECTURE]
set -eu
out=${1:?usage: tests/bench/diet_h200.sh OUTPUT_DIRECTORY [ARCHITECTURE]}
mkdir -p "$out"
cd "$(dirname "$0")/../.."
build=${FLASH_BUILD:-build}/diet-bench
generator=$(command -v ninja > /dev/null && echo Ninja || echo "Unix Makefiles")

cmake -S . -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DFLASH_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="${2:-90}" > "$out/configure.log" 2>&1 || { tail -n 20 "$out/configure.log" >&2; exit 1; }
cmake --build "$build" -j "$(nproc)" --target flash-diet-bench phase13_test > "$out/build.log" 2>&1 ||
  { grep -m 5 -A 5 error "$out/build.log" >&2; exit 1; }
"$build/bin/phase13_test" --test-case='gpu: the steps*' > "$out/diet-test.log" ||
  { cat "$out/diet-test.log" >&2; exit 1; }
"$build/bin/flash-diet-bench" "$out/h200-diet-steps.json" | tee "$out/diet-bench.log"
