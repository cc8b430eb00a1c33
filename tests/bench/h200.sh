#!/bin/sh
# h200.sh: what this folder measures on a GPU, in one go: builds, verifies, times, reads the hardware's counters. Some
# seven minutes on an H200 with 16 cores: two to build, two for `phases`, about one for each other part.
# tests/bench/h200.sh OUTPUT_DIRECTORY [ARCHITECTURE [PART…]]   then copy the *.json into docs/results, and write the
# tables: docs/results/tables.py --write. Parts: backward beside ceilings diet few gradients hopper long model phases
# sectors steps summary torch training.
# Where Eigen, doctest and xtensor are not installed, CMAKE_PREFIX_PATH says where they are.
set -eu
[ $# -gt 0 ] || { sed -n '2,7s/^# //p' "$0" >&2; exit 2; }
out=$1 architecture=${2:-90}
[ $# -lt 2 ] || shift
shift
[ $# -gt 0 ] ||
  set -- ceilings backward beside diet few gradients hopper long model sectors phases summary torch training steps
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.."
build=${FLASH_BUILD:-build}/gpu-bench
generator=$(command -v ninja > /dev/null && echo Ninja || echo "Unix Makefiles")

targets=
for part; do
  case $part in
    ceilings) targets="$targets flash-ceilings" ;;
    backward) targets="$targets flash-backward-bench" ;;
    beside | few | long | model | summary) targets="$targets flash_library" ;;
    diet) targets="$targets flash-diet-bench" ;;
    hopper) targets="$targets flash-hopper-steps-bench" ;;
    sectors) targets="$targets flash-sectors" ;;
    phases) targets="$targets flash-gpu-bench" ;;
    steps) targets="$targets flash-steps-bench" ;;
    gradients) targets="$targets flash-passes" ;;
    training) targets="$targets flash-training-bench flash-passes" ;;
    torch) ;;
    *)
      echo "h200.sh: part '$part' is unknown;" \
        "expected ceilings, backward, beside, diet, few, gradients, hopper, long, model, sectors, phases, summary," \
        "torch, training or steps" >&2
      exit 2
      ;;
  esac
done
began=$(date +%s)
cmake -S . -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DFLASH_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="$architecture" \
  > "$out/configure.log" 2>&1 || { tail -n 20 "$out/configure.log" >&2; exit 1; }
if [ -n "$targets" ]; then
  # shellcheck disable=SC2086  # targets are words
  cmake --build "$build" -j "$(nproc)" --target $targets > "$out/build.log" 2>&1 ||
    { grep -m 5 -A 5 error "$out/build.log" >&2; exit 1; }
fi
echo "== build: $(($(date +%s) - began)) s"

# Each part that fails leaves its file out and the others in; the exit status tells.
status=0
run() {
  began=$(date +%s)
  name=$1
  shift
  "$@" > "$out/$name.log" 2>&1 || { status=1; echo "h200.sh: $name failed" >&2; }
  echo "== $name: $(($(date +%s) - began)) s"
  tail -n 5 "$out/$name.log"
}
for part; do
  case $part in
    backward) run backward "$build/bin/flash-backward-bench" --out "$out/h200-backward.json" ;;
    summary)
      run summary python3 tests/bench/beside_h200.py "$out/h200-summary.json" --sweeps summary,summary-backward \
        --library "$(find "$build" -name libflashphases.so | head -n 1)"
      ;;
    ceilings) run ceilings "$build/bin/flash-ceilings" "$out/h200-ceilings.json" ;;
    beside | few)
      run "$part" python3 tests/bench/beside_h200.py "$out/h200-$part.json" --sweeps "$part" \
        --library "$(find "$build" -name libflashphases.so | head -n 1)"
      ;;
    hopper)
      run hopper "$build/bin/flash-hopper-steps-bench" "$out/h200-hopper-steps.json" "$out/hopper-steps-h200.md"
      ;;
    long)
      run long python3 tests/bench/long_h200.py "$(find "$build" -name libflashphases.so | head -n 1)" "$out"
      ;;
    model)
      FLASHPHASES_LIBRARY=$(find "$build" -name libflashphases.so | head -n 1)
      export FLASHPHASES_LIBRARY
      run torch-tests python3 tests/library/torch_test.py --device cuda
      run transformers-tests python3 tests/library/transformers_test.py --device cuda
      run model python3 tests/bench/model_h200.py "$out/h200-model.json"
      ;;
    diet) run diet "$build/bin/flash-diet-bench" "$out/h200-diet-steps.json" ;;
    sectors) run sectors sh tests/bench/ncu_phases.sh "$build/bin/flash-sectors" "$out" ;;
    phases) run phases "$build/bin/flash-gpu-bench" --out "$out/h200-phases.json" ;;
    torch)
      run torch python3 tests/bench/beside_h200.py "$out/h200-torch.json" --sweeps kernels,naive-vs-flash,steps
      ;;
    gradients)
      run gradients python3 tests/bench/precision_h200.py "$(find "$build" -name libflash-passes.so | head -n 1)" \
        "$out/h200-gradients.json"
      ;;
    training)
      run training "$build/bin/flash-training-bench" "$out/h200-training.json" "$out/training-h200.md"
      run training-beside python3 tests/bench/training_beside.py --out "$out/h200-training-beside.json" \
        --library "$(find "$build" -name libflash-passes.so | head -n 1)"
      ;;
    steps) run steps "$build/bin/flash-steps-bench" "$out/h200-steps.json" ;;
  esac
done
ls -l "$out"
exit "$status"
