#!/bin/sh
# h200.sh: everything in this folder that needs a GPU, in one go: conformance words, hardware counters, sanitizer table.
# Needs nvcc, ncu and compute-sanitizer; takes a few minutes. Without one of the last two, its file is left out.
# Run: from the repository's root, tests/simt/h200.sh OUTPUT_DIRECTORY [sm_90a]
set -eu
out=${1:?usage: tests/simt/h200.sh OUTPUT_DIRECTORY [ARCHITECTURE]}
arch=${2:-sm_90a}
mkdir -p "$out"
build=$(mktemp -d)
here=tests/simt

# Host and device without contraction: a*b+c is two roundings unless the source says fmaf.
flags="-std=c++20 -O2 -lineinfo -gencode=arch=compute_${arch#sm_},code=$arch -fmad=false -I. -x cu"
# Fresh memory is not poisoned here: initcheck would take the poison for data.
export FLASH_NO_POISON=1
# Further kernel files of a program (museum_ptx.cu, museum_tma.cu) need sm_80, or sm_90a.
for name in conformance:record counters:counters_main museum:museum_main; do
  # shellcheck disable=SC2086  # flags are words
  nvcc $flags "$here/${name%%:*}"*.cu "$here/${name##*:}.cpp" -o "$build/${name%%:*}" &
done
for part in wgmma hopper cluster words; do
  # shellcheck disable=SC2086
  nvcc $flags -DFLASH_RECORD=run_${part}_conformance "$here/conformance_$part.cu" \
    "$here/record.cpp" -o "$build/conformance_$part" &
done
wait
for name in conformance conformance_wgmma conformance_hopper conformance_cluster conformance_words counters museum; do
  test -x "$build/$name" || { echo "h200.sh: nvcc did not build $name" >&2; exit 1; }
done

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
note="$gpu; $(nvcc --version | grep -o 'release [0-9.]*'); commit $commit; $(date -u +%Y-%m-%d)"
echo "$note"

"$build/conformance" "$note" "$build/words.bin" > "$out/conformance-h200.txt"
"$build/conformance_wgmma" "$note" > "$out/conformance-wgmma-h200.txt"
"$build/conformance_hopper" "$note" > "$out/conformance-hopper-h200.txt"
"$build/conformance_cluster" "$note" > "$out/conformance-cluster-h200.txt"
"$build/conformance_words" "$note" > "$out/conformance-words-h200.txt"
gzip -c "$build/words.bin" > "$out/conformance-words.bin.gz" # not for the repository: finds the place of a difference
"$here/ncu_counters.sh" "$build/counters" "$out" "$note" || echo "h200.sh: no hardware counters" >&2
"$here/sanitizer_table.sh" "$build/museum" "$out" "$note" || echo "h200.sh: no sanitizer table" >&2
if command -v cuobjdump > /dev/null; then
  cuobjdump -sass "$build/counters" > "$build/sass" &&
    grep -E 'Function|LDS|STS|LDG|STG|LD\.|ST\.' "$build/sass" > "$out/counters-sass.txt"
fi
rm -rf "$build"
ls -l "$out"
