#!/bin/sh
# sanitizer_phases.sh: each kernel phase under each tool of compute-sanitizer, as ./flash run calls it, on files made
# here; docs/results/tables.py puts what it writes into sanitizer-phases-h200.md. A GPU, python3 with NumPy.
# tests/bench/sanitizer_phases.sh FLASH_PHASES FLASH_PHASES_WITHOUT_POISON OUT.json [PHASE…]     by default all
# The second program is built with -DFLASH_NO_POISON: initcheck would take the NaN of fresh memory for data.
set -eu
program=${1:?usage: sanitizer_phases.sh FLASH_PHASES FLASH_PHASES_WITHOUT_POISON OUT.json [PHASE...]}
unpoisoned=$2 out=$3
shift 3
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for type in float16 float32 bfloat16; do
  mkdir "$work/$type"
  python3 - "$work/$type" "$type" << 'END'
import sys
import numpy as np

folder, kind = sys.argv[1:]
random = np.random.default_rng(1)
for name, rows in (("q", 100), ("do", 100), ("k", 77), ("v", 77)):
    x = random.standard_normal((2, 3, rows, 40))
    # NumPy has no bfloat16: the upper half of a float32, as unsigned integers.
    x = (x.astype("float32").view("uint32") >> 16).astype("uint16") if kind == "bfloat16" else x.astype(kind)
    np.save(f"{folder}/{name}.npy", x)
END
done

inputs='--machine gpu --q q.npy --k k.npy --v v.npy --o o.npy'

# The flags of the most that a phase can do: the first that it does not refuse.
flags_of() {
  for lse in '--lse lse.npy --dout do.npy --dq dq.npy --dk dk.npy --dv dv.npy' '--lse lse.npy' ''; do
    for causal in '--causal bottom-right' ''; do
      # shellcheck disable=SC2086  # flags are words
      if (cd "$work/float16" && "$program" run --phase "$1" $inputs $lse $causal) > "$work/log" 2>&1; then
        echo "$lse $causal"
        return
      fi
    done
  done
  echo "sanitizer_phases.sh: phase $1: $(tail -n 3 "$work/log")" >&2
  exit 1
}

# float16, and float32; where the phase refuses that, bfloat16, which takes the same path as float16 elsewhere.
types_of() {
  # shellcheck disable=SC2086  # flags are words
  if (cd "$work/float32" && "$program" run --phase "$1" $inputs) > "$work/log" 2>&1; then
    echo float16 float32
  else
    echo float16 bfloat16
  fi
}

# One run: phase, type, tool, flags; its line of JSON.
one() {
  run=$program
  [ "$3" != initcheck ] || run=$unpoisoned
  as=
  [ "$2" != bfloat16 ] || as='--type bf16'
  rm -f "$work/$2/o.npy"
  # shellcheck disable=SC2086  # flags are words
  (cd "$work/$2" && compute-sanitizer --tool "$3" "$run" run --phase "$1" $inputs $as $4) > "$work/log" 2>&1 || true
  found=$(sed -n -e 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' \
    -e 's/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$work/log" | tail -n 1)
  # A run that ended before its end, with nothing found, proves nothing.
  [ "${found:-0}" -gt 0 ] || [ -e "$work/$2/o.npy" ] || found=
  [ -n "$found" ] || { echo "sanitizer_phases.sh: $3 on phase $1, $2: $(tail -n 3 "$work/log")" >&2; exit 1; }
  printf '    {"phase": "%s", "type": "%s", "tool": "%s", "found": %s}' "$1" "$2" "$3" "$found"
}

{ printf '{\n  "environment": {\n    "gpu": "%s",\n    "driver": "%s",\n    "cuda": "%s",\n' \
    "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)" \
    "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)" \
    "$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
  printf '    "note": "%s",\n    "commit": "%s",\n    "date": "%s"\n  },\n  "rows": [\n' \
    "$(compute-sanitizer --version | sed -n 's/^Version *//p' | head -n 1)" \
    "${FLASH_COMMIT:-$(git -C "$root" rev-parse --short HEAD)}" "$(date -u +%Y-%m-%d)"
  separator=
  [ $# -gt 0 ] || set -- "$root"/phases/[0-9][0-9]-*/attention.cuh
  for phase; do
    [ "${phase%attention.cuh}" = "$phase" ] || phase=$(basename "$(dirname "$phase")" | cut -c 1-2)
    flags=$(flags_of "$phase")
    for type in $(types_of "$phase"); do
      for tool in memcheck racecheck synccheck initcheck; do
        printf '%b' "$separator"
        one "$phase" "$type" "$tool" "$flags"
        separator=',\n'
      done
    done
  done
  printf '\n  ]\n}\n'
} > "$out"
