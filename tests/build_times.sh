#!/bin/sh
# build_times.sh: what takes the time: the steps of the last build and the tests of the last run, the slowest first.
# From ninja's log (seconds between start and end of each step, so on a busy machine more than its CPU time) and CTest's.
# sh tests/build_times.sh build/default [LINES]
set -eu
build=${1:?the folder of a build}
lines=${2:-25}
echo "build steps: seconds, output"
# The last entry of an output counts: start ms, end ms, mtime, output, hash.
awk 'NR > 1 { ms[$4] = $2 - $1 } END { for (o in ms) { printf "%7.1f %s\n", ms[o] / 1000, o; all += ms[o] }
  printf "%7.1f all steps\n", all / 1000 }' "$build/.ninja_log" | sort -rn | head -n "$lines"
log=$build/Testing/Temporary/CTestCostData.txt
[ -e "$log" ] || exit 0
echo "tests: seconds, name"
# Name, number of runs, mean seconds; test names have blanks.
awk '/^---/ { exit } { t = $NF; sub(/ [0-9]+ [0-9.e+-]+$/, ""); printf "%7.1f %s\n", t, $0 }' "$log" | sort -rn | head -n "$lines"
