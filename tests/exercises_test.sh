#!/bin/sh
# exercises_test.sh: ./flash exercise as a reader meets it: files that are made and kept, verdicts, hints, refusals.
# Whether each verdict of each exercise is the right one is for ./flash exercise --check.
# sh tests/exercises_test.sh PROGRAM, which is flash-exercise
set -eu
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export FLASH_EXERCISES="$work/my files" FLASH_LANG=en
mine="$FLASH_EXERCISES/05.6-two-barriers.cu"
failed=0

# expect STATUS TEXT ARGUMENT…: the program exits with STATUS and prints TEXT.
expect() {
  want=$1 text=$2 status=0
  shift 2
  out=$("$program" "$@" 2>&1 <answer) || status=$?
  case $status:$out in
    "$want":*"$text"*) ;;
    *) failed=1; printf 'exercise %s: exit %s, want %s and "%s":\n%s\n' "$*" "$status" "$want" "$text" "$out" ;;
  esac
}
# lacks TEXT: the last output does not have it.
lacks() { case $out in *"$1"*) failed=1; printf '"%s" is printed:\n%s\n' "$1" "$out" ;; esac; }
# edit SCRIPT: the reader changes the file.
edit() { sed -i "$1" "$mine"; }
: >answer

expect 0 'usage: ./flash exercise' --help
expect 2 "flash exercise: exercise is '77'; expected a phase that has some, as in 05, or one, as in 05.2; ./flash" 77
expect 2 "exercise is '05.9'; expected one of 05.1 05.2 05.3 05.4 05.5 05.6 05.7 05.8" 5.9
expect 2 "exercise is 'x'; expected a phase that has some" x
expect 2 "flag is '--fast'; expected --hint" --fast
expect 2 'one argument too many' 05.6 02.1
expect 2 '--hint is without an exercise' --hint
expect 2 '--watch is without an exercise' --watch 05
expect 2 '--junit is without a value' --junit
expect 2 'a second flag' 05.6 --hint --watch
expect 0 '[ ] 05.6  two-barriers          not tried'
expect 0 '0 of ' 05
lacks '02.1'
[ ! -e "$FLASH_EXERCISES" ] || { failed=1; echo 'the list made files'; }

# The file is made once; what is wrong comes back with the finding's own words and lines.
expect 1 'Put the barriers where they are needed' 05.6
case $out in *'not yet: finding
  A thread may read the tile before'*'uninitialised: read of shared tile'*05.6-two-barriers.cu:*) ;;
  *) failed=1; echo "$out" ;;
esac
edit 's/constexpr int D = 16/constexpr int D = width/'
expect 1 "does not compile
  line $(grep -n width "$mine" | cut -d : -f 1): 'width' was not declared" 05.6
lacks 'Put the barriers where'
expect 0 '[ ] 05.6  two-barriers          does not compile'
edit 's/= width/= 16/; s/multiply(/multiplied(/'
expect 1 "where the judge calls your code: 'multiply' was not declared" 05.6
edit 's/multiplied(/multiply(/; s/  float o\[D\] = {};/&\n  for (int i = 0; i < N; i -= 0) o[0] += 0;/'
expect 1 'A loop in your code does not end' 05.6
edit '/i -= 0/d; s/^ *\/\/ TODO.*/__syncthreads();/'
expect 1 'no prediction yet
  The code is right.' 05.6
lacks 'Two per tile'
edit 's/= unknown/= 5/'
expect 0 'You predicted 5; it is 6.
  Two per tile' 05.6
expect 0 '[x] 05.6  two-barriers          right' 5

# What harms the judge is told, too.
expect 0 'is new.' 05.1 --reset
sed -i 's|const int blocks = .*|const int blocks = 1; std::abort();|' "$FLASH_EXERCISES/05.1-grid.cu"
expect 1 'not yet: crash
  The program ended with status 134' 05.1
rm "$FLASH_EXERCISES/05.1-grid.cu"

expect 0 'hint 1 of 3' 5.6 --hint
lacks 'hint 2'
expect 0 'hint 2 of 3' 05.6 --hint
expect 0 'hint 3 of 3' 05.6 --hint
expect 0 'hint 3 of 3' 05.6 --hint
expect 0 '[x] 05.6  two-barriers          right'

# A teacher tries the files again: what is remembered does not count.
# has TEXT: the report does.
has() { grep -qF -e "$1" report.xml || { failed=1; printf '"%s" is not in the report:\n' "$1"; cat report.xml; }; }
expect 0 '1 right, 0 not yet, 0 not begun; report.xml' 05.6 --junit report.xml
has '<testsuite name="flash exercise" tests="1" failures="0" skipped="0">'
has '<testcase classname="exercises" name="05.6 two-barriers"/>'
edit '0,/__syncthreads();/s///'
expect 0 'is new.' 05.1 --reset
echo 'static_assert(2 < 1, "Q & A");' >>"$FLASH_EXERCISES/05.1-grid.cu"
all=$("$program" | sed -n 's/^[0-9]* of \([0-9]*\) are right.*/\1/p')
expect 1 "0 right, 2 not yet, $((all - 2)) not begun; report.xml" --junit report.xml
has "<testsuite name=\"flash exercise\" tests=\"$all\" failures=\"2\" skipped=\"$((all - 2))\">"
has '<testcase classname="exercises" name="05.6 two-barriers"><failure type="finding" message="A thread may'
has 'name="05.1 grid"><failure type="does not compile" message="line '
has 'static assertion failed: Q &amp; A"'
has 'name="05.2 '
[ "$(grep -c '><skipped message="not begun"/></testcase>' report.xml)" = $((all - 2)) ] || { failed=1; cat report.xml; }
rm "$FLASH_EXERCISES/05.1-grid.cu"
expect 2 '--junit is "/nowhere/report.xml"; expected a file that can be written' --junit /nowhere/report.xml

# Overwritten by name only.
expect 1 'Left as it is.' 05.6 --reset
! grep -q TODO "$mine" || { failed=1; echo 'reset without its name'; }
echo 05.6 >answer
expect 0 'is new.' 05.6 --reset
grep -q TODO "$mine" || { failed=1; echo 'not reset'; }
expect 0 '[ ] 05.6  two-barriers          not tried'

# --watch: again after each save, until it is right; then the next one that is not.
echo '05.7 0 right' >>"$FLASH_EXERCISES/progress"
"$program" 05.6 --watch >watched 2>&1 &
watcher=$!
# seen TEXT: within a minute.
seen() {
  for _ in $(seq 600); do
    ! grep -qs "$1" watched || return 0
    sleep 0.1
  done
  failed=1
  printf -- '--watch did not say "%s":\n' "$1"
  cat watched
}
seen 'waiting for the next save'
edit 's/= unknown/= 6/; s/^ *\/\/ TODO.*/__syncthreads();/'
seen 'as you predicted: 6'
seen '^05.8 ragged-tail'
seen '05.8-ragged-tail.cu where it says TODO'
! grep -q '^05.7' watched || { failed=1; echo '--watch went on to an exercise that is right'; }
kill "$watcher"
wait "$watcher" 2>/dev/null || true

# In Chinese, where the environment says so; the copy, too.
rm -r "$FLASH_EXERCISES"
FLASH_LANG=zh_CN.UTF-8
expect 1 '还没有通过：诊断
  一个线程可能在别的线程填好分块之前就读它' 5.6
grep -q 'TODO: 这个线程可以读' "$mine" && grep -q '先预测' "$mine" ||
  { failed=1; echo 'the copy is not in Chinese'; }
FLASH_LANG=en

FLASH_EXERCISES=/proc/nowhere
expect 2 'set FLASH_EXERCISES' 05.6

[ "$failed" = 0 ] && echo "exercises_test: every answer is as promised"
exit "$failed"
