#!/bin/sh
# run.sh: tests of the tests. Each patch here makes a phase wrong in one named way; that phase's test must fail.
# A patch is called NN-what-is-wrong.patch and is judged by tests/phase_NN_test.cpp, built without CMake for speed.
# tests/mutants/run.sh        all; exits with 1 if one survives, does not apply or does not compile
# tests/mutants/run.sh 04     those whose name starts with 04
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
CXX=${CXX:-g++}
CPPFLAGS=${CPPFLAGS:--isystem /usr/include/eigen3}
CXXFLAGS=${CXXFLAGS:--std=c++20 -O1 -DNDEBUG}

# Compiles with the flags of all; they are words, so they are split.
compile() {
  # shellcheck disable=SC2086
  $CXX $CXXFLAGS -DFLASH_TEST_TYPES=half $CPPFLAGS -pthread "$@"
}

# One mutant, in a copy of the sources of its own. Writes one line into $work/NAME.result.
one() {
  name=$(basename "$1" .patch)
  copy=$work/$name
  mkdir "$copy"
  cp -R "$root/phases" "$root/sim" "$root/tests" "$copy/"
  if ! (cd "$copy" && patch -s -p1 --no-backup-if-mismatch < "$1") > "$copy/log" 2>&1; then
    echo "BROKEN    $name: does not apply; make it again" > "$work/$name.result"
  elif ! compile -include "$work/precompiled.hpp" -I "$copy" -o "$copy/test" "$copy/tests/phase_${name%%-*}_test.cpp" \
    "$work/main.o" > "$copy/log" 2>&1; then
    echo "BROKEN    $name: does not compile: $(grep -m 1 error "$copy/log")" > "$work/$name.result"
  elif timeout 100 "$copy/test" --abort-after=1 > "$copy/log" 2>&1; then
    echo "SURVIVED  $name" > "$work/$name.result"
  else
    echo "caught    $name, by: $(sed -n 's/^TEST CASE: *//p' "$copy/log" | tail -n 1)" > "$work/$name.result"
  fi
  rm -rf "$copy"
  cat "$work/$name.result"
}

if [ "${1:-}" = --one ]; then
  one "$2"
  exit
fi

work=$(mktemp -d)
export work
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# What all have in common is compiled once: doctest's main, and the headers that no patch touches.
printf '#include <doctest/doctest.h>\n#include <Eigen/Core>\n#include <thread>\n' > "$work/precompiled.hpp"
compile -x c++-header "$work/precompiled.hpp" -o "$work/precompiled.hpp.gch" &
compile -c -o "$work/main.o" "$root/tests/doctest_main.cpp"
wait

ls "$root/tests/mutants/${1:-}"*.patch > "$work/list"
xargs -P "${JOBS:-2}" -I "{}" "$0" --one "{}" < "$work/list"

all=$(wc -l < "$work/list")
caught=$(cat "$work"/*.result | grep -c '^caught' || true)
echo "mutants: $caught of $all caught"
[ "$caught" -eq "$all" ]
