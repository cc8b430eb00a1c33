#!/bin/sh
# sanitizer_phases.sh: each kernel phase under each tool of compute-sanitizer, as ./flash run calls it, on files made
# here; docs/results/tables.py puts what it writes into sanitizer-phases-h200.md. A GPU, python3.
# tests/bench/sanitizer_phases.sh FLASH_PHASES OUT.json [PHASE…]     by default all
# tests/bench/sanitizer_phases.sh --gradients …      both modes, several D, of phases that have a backward pass
# tests/bench/sanitizer_phases.sh --features …       what models ask for, each by itself, of phases that take it
# FLASH_JOBS: so many run at a time, 1 where nothing is said. FLASH_LOGS: a folder for what the tools say, a file a run
# (a build with -DCMAKE_CUDA_FLAGS=-lineinfo names lines).
set -eu
# Rows and keys; of gradients several tiles, since blocks hand dQ on.
what='' rows=100 keys=77 folders=40
case ${1:-} in
  --gradients) what=gradients rows=200 keys=300 folders='40 128 256'; shift ;;
  --features) what=features rows=200 keys=300 folders='40 128 128-grouped 128-packed'; shift ;;
esac
: "${2:?usage: sanitizer_phases.sh [--gradients|--features] FLASH_PHASES OUT.json [PHASE...]}"
program=$(realpath "$1") out=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for folder in $folders; do
  for type in float16 float32 bfloat16; do
    mkdir "$work/$type-$folder"
    python3 - "$work/$type-$folder" "$type" "$folder" "$rows" "$keys" << 'END'
import random
import struct
import sys

folder, kind, name, rows, keys = *sys.argv[1:4], *map(int, sys.argv[4:])
D, B, H, Hk = int(name.split("-")[0]), 1 if "packed" in name else 2, 3, 1 if "grouped" in name else 3
random.seed(1)
# .npy knows no bfloat16: the upper half of a float32, as unsigned integers.
letter, descr = {"float32": ("f", "<f4"), "float16": ("e", "<f2"), "bfloat16": ("H", "<u2")}[kind]


def write(name, shape, x, letter=letter, descr=descr):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    with open(f"{folder}/{name}.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        file.write(struct.pack(f"<{len(x)}{letter}", *x))


def write_random(name, *shape):
    count = 1
    for length in shape:
        count *= length
    x = [random.gauss(0, 1) for _ in range(count)]
    if kind == "bfloat16":
        x = [bits >> 16 for bits in struct.unpack(f"<{count}I", struct.pack(f"<{count}f", *x))]
    write(name, shape, x)


for name, heads, S in (("q", H, rows), ("do", H, rows), ("k", Hk, keys), ("v", Hk, keys)):
    write_random(name, B, heads, S, D)
# What features are given: their numbers, ends of two sequences and an empty one, the used part of each, documents.
write("slopes", (H,), [0.5, 0.25, 0.125], "f", "<f4")
write("sinks", (H,), [0.5, -1, 2], "f", "<f4")
write_random("bias", 1, H, rows, keys)
write("mask", (1, 1, rows, keys), [i % 7 != 3 for i in range(rows * keys)], "?", "|b1")
for side, S in (("q", rows), ("k", keys)):
    write("ends_" + side, (4,), [0, S // 3, S // 3, S], "i", "<i4")
    write("used_" + side, (B,), [S - 37, S][:B], "i", "<i4")
    write("doc_" + side, (B, S), [i * 3 // S for i in range(S)] * B, "i", "<i4")
END
  done
done

# initcheck would take the NaN of fresh memory for data.
export FLASH_NO_POISON=1
inputs='--machine gpu --q q.npy --k k.npy --v v.npy --o o.npy'
backward='--lse lse.npy --dout do.npy --dq dq.npy --dk dk.npy --dv dv.npy'

# takes PHASE TYPE FOLDER FLAGS: does it run? What it says is in the log.
takes() {
  rm -rf "$work/try"
  mkdir "$work/try"
  ln -s "$work/$2-$3"/*.npy "$work/try"
  # shellcheck disable=SC2086  # flags are words
  (cd "$work/try" && "$program" run --phase "$1" $inputs $4) > "$work/log" 2>&1
}

# The flags of the most that a phase can do: the first that it does not refuse.
flags_of() {
  for lse in "$backward" '--lse lse.npy' ''; do
    for causal in '--causal bottom-right' ''; do
      if takes "$1" float16 40 "$lse $causal"; then
        echo "$lse $causal"
        return
      fi
    done
  done
  echo "sanitizer_phases.sh: phase $1: $(tail -n 3 "$work/log")" >&2
  exit 1
}

# A name, the folder of its inputs, and flags.
features='grouped 128-grouped
window 128 --window 64,0
packed 128-packed --cu-seqlens-q ends_q.npy --cu-seqlens-k ends_k.npy
padded 128 --seqused-q used_q.npy --seqused-k used_k.npy
softcap 128 --softcap 20
ALiBi 128 --alibi slopes.npy
bias 128 --bias bias.npy --dbias dbias.npy
mask 128 --mask mask.npy
documents 128 --doc-q doc_q.npy --doc-k doc_k.npy
sinks 128 --sinks sinks.npy --dsinks dsinks.npy
dropout 128 --dropout 0.25'

# What is run of a phase, a line each: folder, type, how it is called in the table ("-": by its number), flags.
cases_of() {
  flags=$(flags_of "$1")
  if [ "$what" = features ]; then
    echo "$features" | while read -r name folder given; do
      ! takes "$1" float16 "$folder" "$flags $given" || echo "$folder bfloat16 $name $flags $given"
    done
  elif [ "$what" = gradients ]; then
    printf '%s\n' "40 float16 - $flags" "40 bfloat16 - $flags" "40 bfloat16 atomic $flags --mode atomic"
    for D in 128 256; do
      ! takes "$1" float16 "$D" "$flags" ||
        printf '%s\n' "$D bfloat16 D_$D $flags" "$D float16 D_${D}_atomic $flags --mode atomic"
    done
  else
    # float16, and float32; where the phase refuses that, bfloat16, which takes the same path as float16 elsewhere.
    other=bfloat16
    ! takes "$1" float32 40 '' || other=float32
    printf '%s\n' "40 float16 - $flags" "40 $other - $flags"
  fi
}

# one FOLDER PHASE TOOL INPUTS TYPE NAME FLAG…: a run in a new folder; its line of JSON.
one() {
  folder=$1 phase=$2 tool=$3 given=$4 type=$5 name=$6
  mkdir "$folder"
  ln -s "$work/$type-$given"/*.npy "$folder"
  shift 6
  as=
  [ "$type" != bfloat16 ] || as='--type bf16'
  # shellcheck disable=SC2086  # flags are words
  (cd "$folder" && timeout 120 compute-sanitizer --tool "$tool" "$program" run --phase "$phase" $inputs $as "$@") \
    > "$folder/log" 2>&1 || true
  # The first of these lines: another one may say how many of them were not printed.
  found=$(sed -n -e 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' \
    -e 's/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$folder/log" | head -n 1)
  [ -z "${FLASH_LOGS:-}" ] || cp "$folder/log" "$FLASH_LOGS/$phase-$type-D$given-$name-$tool"
  [ "$name" = - ] || phase="$phase, $(echo "$name" | tr _ ' ')"
  # A run that ended before its end, with nothing found, proves nothing.
  if [ -z "$found" ] || { [ "$found" -eq 0 ] && [ ! -e "$folder/o.npy" ]; }; then
    echo "sanitizer_phases.sh: $tool on phase $phase, $type: $(tail -n 3 "$folder/log")" >&2
    return
  fi
  printf '    {"phase": "%s", "type": "%s", "tool": "%s", "found": %s}' "$phase" "$type" "$tool" "$found"
}

[ $# -gt 0 ] || set -- "$root"/phases/[0-9][0-9]-*/attention.cuh
number=1000
for phase; do
  [ "${phase%attention.cuh}" = "$phase" ] || phase=$(basename "$(dirname "$phase")" | cut -c 1-2)
  cases_of "$phase" > "$work/cases"
  while read -r case; do
    for tool in memcheck racecheck synccheck initcheck; do
      number=$((number + 1))
      # shellcheck disable=SC2086  # a case is words
      one "$work/run-$number" "$phase" "$tool" $case > "$work/row-$number" &
      [ $((number % ${FLASH_JOBS:-1})) -ne 0 ] || wait
    done
  done < "$work/cases"
done
wait
{ printf '{\n  "environment": {\n    "gpu": "%s",\n    "driver": "%s",\n    "cuda": "%s",\n' \
    "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)" \
    "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)" \
    "$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
  printf '    "note": "%s",\n    "commit": "%s",\n    "date": "%s"\n  },\n  "rows": [\n' \
    "$(compute-sanitizer --version | sed -n 's/^Version *//p' | head -n 1)" \
    "${FLASH_COMMIT:-$(git -C "$root" rev-parse --short HEAD)}" "$(date -u +%Y-%m-%d)"
  separator=
  for row in "$work"/row-*; do
    [ -s "$row" ] || continue
    printf '%b' "$separator"
    cat "$row"
    separator=',\n'
  done
  printf '\n  ]\n}\n'
} > "$out"
# A run without a result has said why, and is missing in the table.
for row in "$work"/row-*; do [ -s "$row" ] || exit 1; done
