#!/bin/sh
# lint_test.sh: lint.sh finds each kind of offence and nothing else: a tree with one offence in each file, one without
# any, and one with a single offence. A lint that cannot fail would be worth nothing.
# sh tests/lint_test.sh
set -eu
lint=$(cd "$(dirname "$0")" && pwd)/lint.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
number=0

# offence FILE LINE RULE: a header with LINE in it is to be refused by RULE, and by no other ("" = accepted). Where the
# file is there already, it has a folder of its own below that one's.
offence() {
  tree=refused file=$1
  [ -n "$3" ] || tree=accepted
  number=$((number + 1))
  [ ! -e "$work/$tree/$file" ] || file=${file%/*}/$number/${file##*/}
  mkdir -p "$work/$tree/$(dirname "$file")"
  printf '#pragma once\n%s\n' "$2" >"$work/$tree/$file"
  [ -z "$3" ] || printf '%s\t%s\n' "$file" "$3" >>"$work/wanted"
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

if out=$(sh "$lint" "$work/accepted"); then status=0; else status=1; fi
[ "$status" = 0 ] || { failed=1; printf 'refused without cause:\n%s\n' "$out"; }

# The files that were found, each with its rule, which stands above its files; and beside each the rule that was wanted.
sh "$lint" "$work/refused" >"$work/said" && { failed=1; echo 'lint.sh ends well though there are offences'; }
awk '/^\.\// { file = substr($0, 3); sub(/:.*/, "", file); print file "\t" rule; next } { rule = $0 }' "$work/said" \
  >"$work/found"
awk -F '\t' 'FNR == NR { wanted[$1] = $2; next }
  !index($2, wanted[$1]) || wanted[$1] == "" { print "not by this rule: " $1 ": " $2; next }
  { seen[$1] = 1 }
  END { for (file in wanted) if (!(file in seen)) print "not found: " file ": " wanted[file] }' \
  "$work/wanted" "$work/found" >"$work/wrong"
[ ! -s "$work/wrong" ] || { failed=1; cat "$work/wrong"; }

mkdir -p "$work/one/sim" && echo 'int x;' >"$work/one/sim/x.hpp"
if sh "$lint" "$work/one" >/dev/null; then failed=1; echo 'not found: missing #pragma once'; fi
[ "$failed" = 0 ] && echo "lint_test: all $number lines were judged as they should be"
exit "$failed"
