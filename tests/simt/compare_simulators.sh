#!/bin/sh
# compare_simulators.sh: attention forward on numba's CUDA simulator, Oclgrind and our two builds, one core, one run.
# Writes docs/results/simulators.md. Installs nothing: needs a python3 with numba, oclgrind-kernel, and our bench program.
# Run: tests/simt/compare_simulators.sh BENCH_PROGRAM [PYTHON]
set -eu
bench=${1:?usage: tests/simt/compare_simulators.sh BENCH_PROGRAM [PYTHON]}
python=${2:-python3}
here=$(dirname "$0")
"$python" -c 'import numba' 2> /dev/null || { echo "$python has no numba (Debian: python3-numba, /usr/bin/python3)" >&2; exit 1; }
command -v oclgrind-kernel > /dev/null || { echo "oclgrind-kernel is missing (Debian: oclgrind)" >&2; exit 1; }
others=$(mktemp) ours=$(mktemp)
taskset -c 0 "$python" "$here/compare/simulators.py" > "$others"
taskset -c 0 "$bench" > "$ours"
cat "$others" "$ours"
