#!/bin/sh
# lint.sh: what may include what, and other rules of the house that a compiler does not check.
# Prints each offence as file:line, exits with 1 if there was any.
# sh tests/lint.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

# rule TEXT: the offences, if any, come on standard input.
rule() {
  offences=$(cat)
  [ -z "$offences" ] || printf '%s\n' "$1:" "$offences"
}

# The files of ours, by name pattern; build trees, hidden folders and output are not ours.
files() {
  for pattern; do
    find . \( -path './.*' -o -path './build*' -o -path ./out -o -path ./exercises \) -prune \
      -o -type f -name "$pattern" -print
  done
}

# include REGEX: lines that include such a header, in the files named on standard input.
include() { tr '\n' '\0' | xargs -0 -r grep -HnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($1)" || true; }

# Code that names a phase, comments aside: by its folder, its namespace or its name.
# shellcheck disable=SC2016 # awk's $
names_phase='{ code = $0; sub(/^[ \t]*#[^i].*|[ \t]#[ ].*|\/\/.*/, "", code) }
  code ~ /phases\/[0-9][0-9]-|phase[0-9][0-9]|"([^"]*[^a-z0-9"])?[0-9][0-9]-[a-z]|"phase [0-9]|find_phase\("/ {
    print FILENAME ":" FNR ": " $0
  }'

# A byte 200-277 (octal) continues a UTF-8 character. Addresses do not count; rows of tables in pages may be longer.
# shellcheck disable=SC2016 # awk's $
too_long='/^ *\|/ && FILENAME ~ /\.md$/ { next }
  { gsub(/[\200-\277]/, ""); gsub(/https?:\/\/[^ )>"]*/, "") }
  length > 120 { print FILENAME ":" FNR ": " length " characters" }'

# The files of this tree that comments name: FILE:LINE NAME. NN, K- and 07-x stand for any phase, any exercise.
# shellcheck disable=SC2016 # awk's $
names_file='FNR == 1 { begins = FILENAME ~ /\.(hpp|cpp|cuh|cu|h|c|cl)$/ ? "(^|[ \t])(//|/?[*])" : "(^|[ \t])#" }
  match($0, begins) {
    line = substr($0, RSTART + RLENGTH)
    while (match(line, "(^|[^A-Za-z0-9_./$}*-])(" folders ")/[A-Za-z0-9_./-]*[.](cpp|hpp|cuh|cu|cmake|sh|py|md)")) {
      name = substr(line, RSTART, RLENGTH)
      line = substr(line, RSTART + RLENGTH)
      sub(/^[^A-Za-z]/, "", name)
      if (name !~ /NN|\/K-|-x\//) print FILENAME ":" FNR, name
    }
  }'
missing() { while read -r place name; do [ -e "$name" ] || printf '%s: %s\n' "$place" "$name"; done; }

rules() {
  files '*.hpp' '*.cpp' '*.cu' '*.cuh' | grep -vx './phases/arrays/xtensor.hpp' | include 'xtensor|xtl/' |
    rule 'only phases/arrays/xtensor.hpp may include xtensor'
  files '*.cu' '*.cuh' | include 'Eigen|xtensor|xtl/|doctest|phases/arrays/tensor.hpp|phases/interface/matrix.hpp' |
    rule 'a kernel file may not include Eigen, xtensor or doctest'
  files '*.hpp' '*.cpp' '*.cuh' '*.cu' | grep -E '^\./(sim|gpu)/' | include 'Eigen|xtensor|xtl/|doctest|phases/' |
    rule 'sim/ and gpu/ know nothing of attention, Eigen, xtensor or doctest'
  # They stand one above the other: the core runs blocks and tells whoever observes it, the checks produce findings, a
  # report renders them.
  above='machine\.hpp|cuda/|dialect/|compiler/'
  for room in report checks counters core; do
    files '*.hpp' '*.cpp' | grep "^\./sim/$room/" | include "sim/($above)"
    above="$above|$room/"
  done | rule 'the rooms of sim/ include those below them only: report, checks, counters, core'
  files '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.c' '*.h' | grep '^\./phases/' | include 'tests/' |
    rule 'phases/ includes nothing of tests/'
  # They know a phase by its declaration (phases/interface). Tests may name one, and so do three benchmarks and a reader
  # of machine code, each of the steps that lead up to one phase: of kernels that nobody declares.
  files '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.c' '*.h' '*.py' '*.sh' |
    grep -E '^\./(phases/(app|arrays|exercises|interface|library|pages)|tests/bench)/' |
    grep -Ev '_test\.|^\./tests/bench/((steps|diet|hopper_steps)_bench\.cpp|sass\.py)$' |
    tr '\n' '\0' | { xargs -0 -r awk "$names_phase"; } |
    rule 'programs and benchmarks know a phase by its declaration, not by its name'
  files '*.hpp' '*.cpp' '*.cu' '*.cuh' '*.cmake' CMakeLists.txt '*.sh' flash | tr '\n' '\0' |
    { xargs -0 -r grep -Hn "$(printf '\t')" || true; } | rule 'no tabs'
  files '*.hpp' '*.cpp' '*.cu' '*.cuh' '*.cmake' CMakeLists.txt '*.json' '*.md' '*.py' flash | tr '\n' '\0' |
    { xargs -0 -r grep -HnE '(^|[^[:alnum:]_.}])/(home|root|work|Users)/' || true; } | rule 'no paths of one machine'
  files '*.hpp' '*.cuh' | tr '\n' '\0' | { xargs -0 -r grep -L '^#pragma once' || true; } |
    rule 'headers say #pragma once'
  files '*.hpp' '*.cuh' | tr '\n' '\0' | { xargs -0 -r grep -HnE '^[[:space:]]*using namespace' || true; } |
    rule 'no using namespace in a header'
  # CTest would make two tests of it, of which doctest knows neither, and both would pass.
  files '*.cpp' | tr '\n' '\0' | { xargs -0 -r grep -HnE '(TEST_CASE|TEST_CASE_TEMPLATE)\("[^"]*;' || true; } |
    rule 'no semicolon in the title of a test'
  # Whoever prints what is expected and then crashes has not passed, and whoever says "skipped: no" is not skipped.
  files '*.cmake' CMakeLists.txt | tr '\n' '\0' | { xargs -0 -r grep -HnE '(PASS|SKIP)_REGULAR_EXPRESSION' || true; } |
    rule 'a test tells by its exit status whether it has passed'
  files '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.cl' '*.cmake' CMakeLists.txt '*.sh' flash '*.py' '*.md' | tr '\n' '\0' |
    { LC_ALL=C xargs -0 -r awk "$too_long"; } | rule 'lines of 120 characters at most'
  files '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.h' '*.c' '*.cl' '*.cmake' CMakeLists.txt '*.sh' '*.py' flash | tr '\n' '\0' |
    { LC_ALL=C xargs -0 -r awk -v folders='cmake|docs|gpu|phases|sim|tests' "$names_file"; } | missing |
    rule 'a comment names no file that is not there'
}

found=$(rules)
bad=0
[ -z "$found" ] || { printf '%s\n' "$found"; bad=1; }

# The scripts that a bare system must run: POSIX sh.
for script in flash tests/*.sh; do
  [ ! -e "$script" ] || sh -n "$script" || bad=1
done

[ "$bad" = 0 ] && echo "lint: clean"
exit "$bad"
