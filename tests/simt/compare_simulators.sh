#!/bin/sh
# compare_simulators.sh: attention forward on numba's CUDA simulator, Oclgrind and our two builds, one core.
# Writes docs/results/simulators.json. Installs nothing: needs python3 with numba, oclgrind-kernel, our simt-speed.
# Run: tests/simt/compare_simulators.sh build/bin/simt-speed docs/results/simulators.json [PYTHON]
set -eu
usage='usage: tests/simt/compare_simulators.sh SIMT_SPEED_PROGRAM OUT.json [PYTHON]'
bench=${1:?$usage} out=${2:?$usage} python=${3:-python3}
"$python" -c 'import numba' 2> /dev/null || { echo "$python has no numba; pip install numba, in a venv" >&2; exit 1; }
command -v oclgrind-kernel > /dev/null || { echo "oclgrind-kernel is missing (Debian: oclgrind)" >&2; exit 1; }
exec taskset -c 0 "$python" "$(dirname "$0")/compare/simulators.py" "$bench" "$out"
