#!/bin/sh
# run.sh: tests of the tests. Each patch here makes a source wrong in one named way; the test program that its folder
# is named after (phase07/…, app/…, simt_museum/…) must then fail. Deleting any __syncthreads() of a phase's kernel must
# make the checked simulator object. Uses the objects of a built tree (Ninja) and compiles only what a mutant changes.
#   tests/mutants/run.sh BUILD              a dozen, picked by a hash of the sources; verdicts are kept by that hash
#   tests/mutants/run.sh BUILD all          all of them
#   tests/mutants/run.sh BUILD phase07      those of one program; phase07/mask-off-by-one: one
# Exits with 1 if one survives, does not apply or does not compile. json.sh makes a results file of its lines.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

# Every mutant, a line each: a patch as PROGRAM/NAME, a deleted barrier as PROGRAM/barrier@FILE@LINE.
list() {
  (cd "$here" && find . -mindepth 2 -name '*.patch' | sed 's|^\./||; s|\.patch$||')
  (cd "$root" && grep -n '__syncthreads();' phases/*/*.cuh phases/*/steps/*.cuh) |
    sed 's|^phases/\([0-9][0-9]\)\([^:]*\):\([0-9]*\):.*|phase\1/barrier@phases/\1\2@\3|'
}

# One mutant: $1 its name. Prints one line and leaves it in $work/N.result.
one() {
  program=${1%%/*}
  test=bin/${program}_test
  mine=$work/$(printf %s "$1" | tr '/@' '__')
  mkdir "$mine"
  only='*'
  case $1 in phase*) machines='sim all' ;; *) machines=all ;; esac
  case $1 in
    */barrier@*)
      place=${1#*/barrier@}
      files=${place%@*}
      overlay "$files"
      sed -i "${place##*@}s/__syncthreads();//" "$mine/$files"
      only='*checked: clean*'
      machines=checked
      ;;
    *)
      files=$(sed -n 's|^+++ b/||p' "$here/$1.patch" | cut -f 1)
      for file in $files; do overlay "$file"; done
      if ! (cd "$mine" && patch -s -p1 --no-backup-if-mismatch -i "$here/$1.patch") > "$mine/log" 2>&1; then
        verdict "BROKEN    $1: does not apply; make it again"
        return
      fi
      ;;
  esac
  changed=$(cd "$mine" && find . -type f ! -name log | sed 's|^\.||')
  # Most kernels are caught on the fast simulator, in a program without the checked one (else what disagrees with the
  # checked one would count as caught). Only those that are not are compiled for it too.
  for machine in $machines; do
    if ! build "$test" > "$mine/log" 2>&1; then
      verdict "BROKEN    $1: does not compile: $(grep -m 1 error "$mine/log")"
      return
    elif [ "$fresh $machine" = 'no sim' ]; then
      continue  # the fast simulator has no part in it
    elif ! passes; then
      # The first that failed: after an exception, unlike after a failed CHECK, doctest goes on. None: it was stopped.
      by=$(awk '/^TEST CASE: / { test = $0 } / ERROR: / { print test; exit }' "$mine/test.log" |
        sed 's/^TEST CASE: *//')
      [ -n "$by" ] || by=$(sed -n 's/^TEST CASE: *\(.*\)/the limit of time, after \1/p' "$mine/test.log" | tail -n 1)
      if [ -z "$by" ]; then
        verdict "BROKEN    $1: no test case failed, and yet: $(tail -n 1 "$mine/test.log")"
        return
      fi
      finding=$(grep -m 1 -o 'race: [a-z ]* of shared [A-Za-z0-9_:]*' "$mine/test.log" || true)
      verdict "caught    $1, by: $by${finding:+: $finding}"
      return
    fi
  done
  verdict "SURVIVED  $1"
}

# Does the mutant pass its tests? Those of the program's own file first: they are the likelier to notice.
passes() {
  for which in '' -exclude; do
    (
      ulimit -t 300  # of processor time: a busy computer is no test
      FLASH_PROGRAM=$mine/flash-phases exec timeout 1800 "$mine/test" --abort-after=1 --test-case="$only" \
        "--source-file$which=*_test.cpp"
    ) > "$mine/test.log" 2>&1 || return 1
  done
}

# A copy of a source file at its place below $mine, where #include finds it first.
overlay() {
  mkdir -p "$mine/$(dirname "$1")"
  cp "$root/$1" "$mine/$1"
}

verdict() {
  printf '%s\n' "$1" | tee "$mine.result"
  rm -rf "$mine"
}

# Builds the test program ($1), and flash-phases where the tests run it, with the $changed files below $mine in place of
# the tree's; of the kernels those for $machine. Sets fresh=yes when it compiled something.
build() {
  fresh=no
  relink "$1" "$mine/test" || return 1
  case $program in app | tour) relink bin/flash-phases "$mine/flash-phases" || return 1 ;; esac
}

relink() {
  command=$(ninja -t commands -s "$1" | sed 's|^: && ||; s| && .*||')
  for object in $(objects | sort -u); do
    depends "$object" || continue
    case $machine$object in sim*_checked.dir/* | checked*_sim.dir/*) continue ;; esac
    name=$mine/$(printf %s "$object" | tr / _)
    # The mutant's folder first, an output of our own, less optimisation, and no error for what a mutant leaves unused.
    # (Checked kernels have -Og anyway; what they count depends on it.)
    case $object in *_checked.dir/* | *_sim.dir/*) flags='-Wno-error -Og' ;; *) flags='-Wno-error -O1' ;; esac
    compile=$(compile_of "$object" "$flags" "$name" | sed "s| \(\"\{0,1\}-I\)| -I$mine \1|")
    # The mutant's copy, where the source file itself is the mutant.
    for file in $changed; do
      case $compile in *"$file" | *"$file"[\"\']) compile="${compile% -c *} -c $mine$file" ;; esac
    done
    if [ ! -e "$name" ]; then
      fresh=yes
      eval "$compile" || return 1
    fi
    # Kernels of the fast simulator first: what is inlined at -O2 is a function of its own at -Og, and the checked
    # kernels have one of the same name, which calls the checker.
    first='s| \([^ ]*\.o\) | '$name' \1 |'
    case $object,$command in
      *_sim.dir/*,*) command=$(printf '%s\n' "$command" | sed "s| $object | |; $first") ;;
      *,*" $object "*) command=$(printf '%s\n' "$command" | sed "s| $object | $name |") ;;
      *) command=$(printf '%s\n' "$command" | sed "s| -o | $name -o |") ;;  # out of an archive: ours comes first
    esac
  done
  [ "$machine" != sim ] || command=$(printf '%s\n' "$command" | sed "s| -o | $unchecked -o |")
  eval "$(printf '%s\n' "$command" | sed "s| -o $1 | -o $2 |")"
}

# The command that compiles an object ($1), with more flags ($2) and into another file ($3).
compile_of() {
  ninja -t commands -s "$1" | sed "s| -MD -MT .* -o [^ ]* | $2 -o $3 |"
}

# The object files that $command links, those of its archives too.
objects() {
  for word in $command; do
    case $word in
      *_gpu.dir/*) ;;  # judged on the simulators alone
      *.o) echo "$word" ;;
      # What ./flash check alone has does not link elsewhere.
      *.a)
        [ ! -e "$build/$word" ] ||
          ninja -t query "$word" | sed -n 's/^    \([^|]*\.o\)$/\1/p' | { grep -v /sim/cuda/ || true; }
        ;;
    esac
  done
}

# Does an object depend on a changed file?
depends() {
  dependencies=$(ninja -t deps "$1")
  for file in $changed; do
    case $dependencies in *"$file"*) return 0 ;; esac
  done
  return 1
}

build=$(cd "$1" && pwd)
cd "$build"
if [ "${2:-}" = --one ]; then
  one "$3"
  exit
fi

work=$(mktemp -d)
unchecked=$work/where.o  # phases/interface/where.cpp, saying that there is no checked simulator
export work unchecked
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# A patch that the sources have left behind is noticed whichever ones are run.
stale=0
for patch in "$here"/*/*.patch; do
  (cd "$root" && patch -s -p1 --dry-run --force -i "$patch") > /dev/null 2>&1 && continue
  echo "BROKEN    ${patch#"$here"/}: does not apply; make it again" >&2
  stale=1
done
[ "$stale" = 0 ] || exit 1

# Which ones.
hash=$(cd "$root" && find phases sim gpu tests -type f | LC_ALL=C sort | xargs cat | cksum | cut -d ' ' -f 1)
kept=$build/mutants-$hash.txt
case ${2:-dozen} in
  dozen)
    if [ -e "$kept" ]; then
      cat "$kept"
      if grep -qv '^caught\|^mutants' "$kept"; then exit 1; fi
      exit 0
    fi
    list | LC_ALL=C sort | awk -v x="$hash" '{ all[NR] = $0 } END {
      for (n = 0; n < 12 && n < NR; ) {
        x = (x * 69069 + 12345) % 4294967296
        i = 1 + int(x / 4294967296 * NR)
        if (!(i in taken)) { taken[i] = 1; ++n; print all[i] }
      }
    }' > "$work/list"
    ;;
  all) list > "$work/list" ;;
  *)
    if ! list | grep -E "^$2(/|\$)" > "$work/list"; then
      echo "flash: mutant '$2' is none of tests/mutants; name a program, or PROGRAM/NAME as in SURVIVED lines" >&2
      exit 2
    fi
    ;;
esac

eval "$(compile_of CMakeFiles/flash_common.dir/phases/interface/where.cpp.o -DFLASH_NO_CHECKED_KERNELS "$unchecked")"
xargs -P "${JOBS:-2}" -I "{}" "$here/run.sh" "$build" --one "{}" < "$work/list"

all=$(wc -l < "$work/list")
caught=$(cat "$work"/*.result | grep -c '^caught' || true)
score="mutants: $caught of $all caught (hash of the sources $hash)"
echo "$score"
if [ "${2:-dozen}" = dozen ]; then { LC_ALL=C sort "$work"/*.result && echo "$score"; } > "$kept"; fi
[ "$caught" -eq "$all" ]
