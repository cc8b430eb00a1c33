#!/bin/sh
# kernels.sh: tests of the kernel phases' tests. Each patch in kernels/ makes a kernel wrong in one named way, and each
# barrier of each kernel is deleted in turn: there the checked simulator itself must object. Without CMake, for speed.
# tests/mutants/kernels.sh            all; exits with 1 if one survives, does not apply or does not compile
# tests/mutants/kernels.sh 07         those whose name starts with 07; "barriers": only the barriers
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
CXX=${CXX:-g++}
CPPFLAGS=${CPPFLAGS:--isystem /usr/include/eigen3}
CXXFLAGS="${CXXFLAGS:--std=c++20 -DNDEBUG} -DFLASH_TEST_TYPES=half -Wno-unknown-pragmas $CPPFLAGS -pthread"
FAST=${FAST:--mavx2 -mfma -mf16c}
CHECKED="-DFLASH_CHECKED -g1 -fno-optimize-sibling-calls -fno-strict-aliasing -fsanitize=thread
  --param=tsan-instrument-func-entry-exit=0 --param=tsan-distinguish-volatile=1"

# Compiles $1/phases/$2-*/attention.cu for both simulators into $1/$2_sim.o and $1/$2_checked.o.
kernel() {
  for machine in sim checked; do
    printf '#include "%s"\n' "$(cd "$1" && echo phases/"$2"-*/attention.cu)" > "$1/$2_$machine.cpp"
  done
  # shellcheck disable=SC2086 # the flags are words
  $CXX $CXXFLAGS -ffp-contract=off $FAST -O1 -I "$1" -DFLASH_MACHINE=on_sim -c -o "$1/$2_sim.o" "$1/$2_sim.cpp" &&
    $CXX $CXXFLAGS -ffp-contract=off $FAST -Og $CHECKED -I "$1" -DFLASH_MACHINE=on_checked -c -o "$1/$2_checked.o" \
      "$1/$2_checked.cpp"
}

# Compiles the phase's test, from the sources in $1.
test_object() {
  # shellcheck disable=SC2086
  $CXX $CXXFLAGS -O1 -I "$1" -c -o "$1/$2_test.o" "$1/tests/phase_$2_test.cpp"
}

# One mutant in a copy of the sources. $1: NAME.patch, or phase:file:line of a barrier. One line into $work/NAME.result.
one() {
  case $1 in
    *.patch) name=$(basename "$1" .patch) ;;
    *) name=$(echo "$1" | sed 's|:phases/[^/]*/|-barrier-|; s|:|-|g') ;;
  esac
  number=$(echo "$name" | cut -c 1-2)
  copy=$work/$name
  mkdir "$copy"
  cp -R "$root/phases" "$root/sim" "$root/gpu" "$root/tests" "$copy/"
  case $1 in
    *.patch) change="patch -s -p1 --no-backup-if-mismatch -i $1" only='*' ;;
    *) only='checked: clean*' change="sed -i $(echo "$1" | cut -d: -f3)s/__syncthreads();// $(echo "$1" | cut -d: -f2)" ;;
  esac
  before=
  case $number in 06) before=05 ;; 07) before=06 ;; 08) before=07 ;; esac
  objects="$copy/${number}_sim.o $copy/${number}_checked.o $work/base/${number}_test.o"
  if [ -n "$before" ]; then objects="$objects $work/base/${before}_sim.o $work/base/${before}_checked.o"; fi
  if [ "$number" = 06 ]; then objects=$(echo "$objects" | sed "s|$work/base/06_test.o|$copy/06_test.o|"); fi
  # shellcheck disable=SC2086
  if ! (cd "$copy" && $change) > "$copy/log" 2>&1; then
    echo "BROKEN    $name: does not apply; make it again" > "$work/$name.result"
  elif ! { kernel "$copy" "$number" && { [ "$number" != 06 ] || test_object "$copy" 06; } &&
    $CXX -pthread -o "$copy/test" $objects "$work"/base/main.o "$work"/base/sim_*.o -lbacktrace; } > "$copy/log" 2>&1; then
    echo "BROKEN    $name: does not compile: $(grep -m 1 error "$copy/log")" > "$work/$name.result"
  elif timeout 300 "$copy/test" --abort-after=1 --test-case="$only" > "$copy/log" 2>&1; then
    echo "SURVIVED  $name" > "$work/$name.result"
  else
    by=$(sed -n 's/^TEST CASE: *//p' "$copy/log" | tail -n 1)
    finding=$(grep -m 1 -o 'race: [a-z ]* of shared [A-Za-z0-9:]*' "$copy/log" || true)
    echo "caught    $name, by: $by${finding:+: $finding}" > "$work/$name.result"
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

# The list: patches, then barriers.
if [ "${1:-}" != barriers ]; then ls "$root/tests/mutants/kernels/${1:-}"*.patch > "$work/list"; fi
cd "$root"
for file in phases/0[5-9]-*/attention.cuh phases/09-backward/forward.cuh; do
  number=$(basename "$(dirname "$file")" | cut -c 1-2)
  case ${1:-} in "$number" | barriers | '')
    grep -n '__syncthreads();' "$file" | sed "s|^\([0-9]*\):.*|$number:$file:\1|" >> "$work/list"
    ;;
  esac
done

# What all have in common is compiled once: the simulator, doctest's main, and the phases and tests as they are.
mkdir "$work/base"
cp -R "$root/phases" "$root/sim" "$root/gpu" "$root/tests" "$work/base/"
for source in sim/*.cpp sim/*/*.cpp; do
  [ "$source" != sim/dialect/launches.cpp ] || continue
  # shellcheck disable=SC2086
  $CXX $CXXFLAGS -O2 -g1 -I . -c -o "$work/base/sim_$(basename "$source" .cpp).o" "$source"
done
# shellcheck disable=SC2086
$CXX $CXXFLAGS -O1 -I . -c -o "$work/base/main.o" tests/doctest_main.cpp
for number in $(sed 's|.*/||; s|^\(..\).*|\1|' "$work/list" | grep '^0' | sort -u) $(cut -c 1-2 "$work/list" | grep '^0' | sort -u); do
  case $number in 06) before=05 ;; 07) before=06 ;; 08) before=07 ;; *) before=; esac
  [ -f "$work/base/${number}_test.o" ] || test_object "$work/base" "$number"
  if [ -n "$before" ] && [ ! -f "$work/base/${before}_sim.o" ]; then kernel "$work/base" "$before"; fi
done

xargs -P "${JOBS:-2}" -I "{}" "$0" --one "{}" < "$work/list"

all=$(wc -l < "$work/list")
caught=$(cat "$work"/*.result | grep -c '^caught' || true)
echo "kernel mutants: $caught of $all caught"
[ "$caught" -eq "$all" ]
