#!/bin/sh
# lint_test.sh: lint.sh finds each kind of offence: one tree per rule with one offence, and a clean tree.
# A lint that cannot fail would be worth nothing.
# sh tests/lint_test.sh
set -eu
lint=$(cd "$(dirname "$0")" && pwd)/lint.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# offence FILE LINE RULE: a header with LINE in it must be refused by RULE ("" = accepted).
offence() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/$(dirname "$1")"
  printf '#pragma once\n%s\n' "$2" >"$work/tree/$1"
  if out=$(sh "$lint" "$work/tree"); then status=0; else status=1; fi
  if [ -z "$3" ]; then
    [ "$status" = 0 ] || { failed=1; printf 'refused without cause: %s\n%s\n' "$1: $2" "$out"; }
  else
    case $status$out in
      1*"$3"*"$1:"* | 1*"$3"*"$1"*) ;;
      *) failed=1; printf 'not found: %s: %s\n' "$1" "$2" ;;
    esac
  fi
}

offence phases/arrays/xtensor.hpp '#include <xtensor/xtensor.hpp>' ''
offence phases/interface/other.hpp '#include <Eigen/Core>' ''
offence phases/interface/other.hpp '#  include <xtensor/xview.hpp>' 'only phases/arrays/xtensor.hpp'
offence tests/a_test.cpp '#include <xtl/xsequence.hpp>' 'only phases/arrays/xtensor.hpp'
offence phases/05-x/attention.cu '#include <Eigen/Core>' 'a kernel file'
offence tests/simt/x.cuh '#include "phases/arrays/tensor.hpp"' 'a kernel file'
offence sim/x.hpp '#include <Eigen/Core>' 'sim/ and gpu/'
offence gpu/x.cuh '#include "phases/interface/problem.hpp"' 'sim/ and gpu/'
offence sim/core/x.hpp '#include "sim/checks/x.hpp"' 'the rooms of sim/'
offence sim/core/x.hpp '#include "sim/report/x.hpp"' 'the rooms of sim/'
offence sim/counters/x.hpp '#include "sim/report/x.hpp"' 'the rooms of sim/'
offence sim/checks/x.hpp '#include "sim/report/x.hpp"' 'the rooms of sim/'
offence sim/report/x.hpp '#include "sim/machine.hpp"' 'the rooms of sim/'
offence sim/report/x.hpp '#include "sim/checks/x.hpp"' ''
offence sim/checks/x.hpp '#include "sim/core/x.hpp"' ''
offence phases/app/x.hpp '#include "tests/reference.hpp"' 'phases/ includes nothing of tests/'
offence phases/05-x/attention.cuh '#include "tests/x.hpp"' 'phases/ includes nothing of tests/'
offence tests/x.hpp '#include "tests/reference.hpp"' ''
for line in '#include "phases/09-backward/phase.hpp"' 'phase09::backward(p);' 'if (name == "13-instruction-diet") {' \
  'of == "times 08-lse" + rest' 'find_phase("08")'; do
  offence phases/app/x.hpp "$line" 'know a phase by its declaration'
done
for place in phases/library phases/interface tests/bench; do
  offence "$place/x.hpp" 'using phase09::Mode;' 'know a phase by its declaration'
  offence "$place/x.py" 'results = {"phase 09": x}' 'know a phase by its declaration'
done
offence phases/app/x.hpp 'int x;  // as phase09::forward, and "13-instruction-diet"' ''
offence phases/app/x.py 'x = 1  # {"08-lse"}' ''
offence phases/app/x.hpp 'read("h200-beside.json", "2024-05-01");' ''
offence phases/08-lse/x.hpp '#include "phases/07-causal/phase.hpp"' ''
offence tests/x.hpp 'phase09::backward(p);' ''
offence tests/bench/x_test.hpp 'find_phase("08")' ''
offence tests/bench/steps_bench.cpp 'using phase05::steps;' ''
offence tests/bench/other_bench.cpp 'using phase05::steps;' 'know a phase by its declaration'
offence sim/x.hpp "$(printf '\tint x;')" 'no tabs'
offence docs/x.md "see /home/somebody/file" 'no paths of one machine'
offence sim/x.hpp 'using namespace std;' 'no using namespace'
offence tests/a_test.cpp 'TEST_CASE("one; two") {' 'no semicolon in the title'
offence tests/a_test.cpp 'TEST_CASE("one, two") { int x; }' ''
offence cmake/x.cmake 'set_tests_properties(x PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")' 'by its exit status'
offence tests/CMakeLists.txt 'set_tests_properties(x PROPERTIES PASS_REGULAR_EXPRESSION "[1-9]")' 'by its exit status'
# repeat COUNT TEXT
repeat() { awk -v n="$1" -v text="$2" 'BEGIN { while (n-- > 0) printf "%s", text }'; }
offence sim/x.hpp "// $(repeat 118 x)" 'lines of 120 characters'
offence sim/x.hpp "// $(repeat 118 ᵀ)" 'lines of 120 characters'
offence sim/x.hpp "// $(repeat 117 ᵀ)" ''
offence docs/x.md "see $(repeat 60 'a ')" 'lines of 120 characters'
offence docs/x.md "| $(repeat 60 'a ')|" ''
offence sim/x.hpp "| $(repeat 60 'a ')|" 'lines of 120 characters'
offence docs/x.md "see <https://example.org/$(repeat 60 ab)>." ''
offence sim/x.hpp '// Tested by tests/x_test.cpp.' 'a comment names no file that is not there'
offence sim/x.sh '# See (docs/y.md).' 'a comment names no file that is not there'
offence sim/x.hpp '// This file, sim/x.hpp, and tests/phase_NN_test.cpp, which stands for many.' ''
offence sim/x.hpp 'const char* name = "tests/x_test.cpp";' ''
rm -rf "$work/tree" && mkdir -p "$work/tree/sim" && echo 'int x;' >"$work/tree/sim/x.hpp"
if sh "$lint" "$work/tree" >/dev/null; then failed=1; echo 'not found: missing #pragma once'; fi
[ "$failed" = 0 ] && echo "lint_test: every offence was found"
exit "$failed"
