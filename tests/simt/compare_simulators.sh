#!/bin/sh
# compare_simulators.sh: attention forward on numba's CUDA simulator, Oclgrind and our two builds, one core, one run.
# Prints docs/results/simulators.md. Installs nothing: needs a python3 with numba, oclgrind-kernel and our simt_speed.
# Run: tests/simt/compare_simulators.sh build/bin/simt_speed [PYTHON] > docs/results/simulators.md
set -eu
bench=${1:?usage: tests/simt/compare_simulators.sh SIMT_SPEED_PROGRAM [PYTHON]}
python=${2:-python3}
"$python" -c 'import numba' 2> /dev/null || { echo "$python has no numba (Debian: python3-numba, for /usr/bin/python3)" >&2; exit 1; }
command -v oclgrind-kernel > /dev/null || { echo "oclgrind-kernel is missing (Debian: oclgrind)" >&2; exit 1; }
exec taskset -c 0 "$python" "$(dirname "$0")/compare/simulators.py" "$bench"
