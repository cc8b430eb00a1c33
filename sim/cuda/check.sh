#!/bin/sh
# check.sh: ./flash check: compiles a CUDA program for the simulator, runs it, prints what was found and counted.
# The build has written how kernels are compiled and linked: check.settings (cmake/kernels.cmake).
# sh sim/cuda/check.sh SETTINGS [options] FILE… [-- arguments]
set -eu

help() {
  cat <<'END'
usage: ./flash check [options] FILE.cu [FILE.cu FILE.cpp …] [-- arguments]

Compiles a CUDA program for the simulator, runs it with the arguments, and prints what is wrong with its kernels and
what they did, in Nsight Compute's words. Neither a GPU nor nvcc is needed; the same files go through nvcc unchanged.
docs/check.md says what works, what is refused and what differs.

  --json             the report as JSON on stdout; the program's own output goes to stderr
  --sim              the fast simulator, without checks
  --order ORDER      in which threads and blocks run: forward (the default), reverse, random
  --completion WHEN  asynchronous copies arrive: late (the default: when they are waited for), eager, random
  --deterministic    additions of floats by atomics, in an order that nothing fixes, are findings, too
  --seed N           for --order random and --completion random
  --threads N        threads of the host, 0: one per core; 1: reports repeat exactly
  --profile sm_90    whose limits hold: sm_90 (the default) or sm_80
  --arch sm_90       gives __CUDA_ARCH__ this value (900) in host code, too; without it, in kernels alone
  --player FILE.html a page for a browser that plays the run step by step, up to the first finding
  --sample N         checks N blocks of each grid, spread over it, and runs the others without checks, which is faster
  --timeout SECONDS  ends a launch that takes longer, and says where it was
  -o PROGRAM         compile only; run PROGRAM yourself, in gdb for instance
  -D -U -I -isystem -include -std -L -l
                     for g++, as nvcc takes them; of nvcc's other options docs/check.md has the list

Exit status: 0 no findings, 1 findings, 2 bad input, 3 the program itself failed.
END
}

if [ "$1" = --help ]; then
  help
  exit 0
fi
settings=$1
shift
count=0
machine=checked
json=no
order=forward
completion=late
deterministic=no
seed=0
profile=sm_90
threads=0
timeout=0
sample=0
program=
player=
architecture=
files=

refuse() { printf 'flash check: %s\n' "$*" >&2; exit 2; }

# value OPTION LIMIT [VALUE]: the value behind an option is missing.
value() { [ $# -ge 3 ] || refuse "$1 is without a value; expected $2; write $1 VALUE"; }

# shellcheck source=sim/cuda/nvcc_options.sh
. "$(dirname "$0")/nvcc_options.sh"

while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --json) json=yes ;;
    --sim) machine=sim ;;
    --deterministic) deterministic=yes ;;
    --order)
      value "$1" 'forward, reverse or random' ${2+"$2"}
      case $2 in
        forward | reverse | random) order=$2 ;;
        *) refuse "--order is '$2'; expected forward, reverse or random; leave it out for forward" ;;
      esac
      shift
      ;;
    --completion)
      value "$1" 'late, eager or random' ${2+"$2"}
      case $2 in
        late | eager | random) completion=$2 ;;
        *) refuse "--completion is '$2'; expected late, eager or random; leave it out for late" ;;
      esac
      shift
      ;;
    --profile)
      value "$1" 'sm_80 or sm_90' ${2+"$2"}
      case $2 in
        sm_80 | sm_90) profile=$2 ;;
        *) refuse "--profile is '$2'; expected sm_80 or sm_90; leave it out for sm_90" ;;
      esac
      shift
      ;;
    --arch)
      value "$1" 'sm_80, sm_90 or the like' ${2+"$2"}
      case ${2#sm_} in
        "$2" | *[!0-9]* | ? | ????*) refuse "--arch is '$2'; expected sm_80, sm_90 or the like; leave it out" ;;
      esac
      architecture=-D__CUDA_ARCH__=${2#sm_}0
      shift
      ;;
    --seed | --threads | --timeout | --sample)
      value "$1" 'a number' ${2+"$2"}
      case $2 in
        '' | *[!0-9]* | ??????????????????*)
          refuse "$1 is '$2'; expected a number of at most 17 digits; leave it out for 0"
          ;;
      esac
      case $1 in --seed) seed=$2 ;; --threads) threads=$2 ;; --sample) sample=$2 ;; *) timeout=$2 ;; esac
      shift
      ;;
    -h | --help)
      help
      exit 0
      ;;
    --player)
      value "$1" 'a file to write' ${2+"$2"}
      player=$2
      shift
      ;;
    -o)
      value "$1" 'a file to write' ${2+"$2"}
      program=$2
      shift
      ;;
    -*)
      nvcc_option "$@"
      [ "$words" -gt 0 ] ||
        refuse "flag '$1' is unknown; expected --json, --sim, --deterministic, --order, --completion, --seed," \
          '--threads, --profile, --arch, --timeout, --sample, --player, -o or an option of nvcc; see --help'
      shift $((words - 1))
      ;;
    *)
      [ -f "$1" ] || refuse "$1 is not there; expected a CUDA program; check its name"
      [ -r "$1" ] || refuse "$1 cannot be read; expected a CUDA program; check its permissions"
      case $1 in *.c) refuse "$1 is C; expected CUDA or C++; give its name the ending .cpp" ;; esac
      count=$((count + 1))
      files="$files $(quoted "$1")"
      ;;
  esac
  shift
done
[ "$count" -gt 0 ] || refuse 'FILE.cu is missing; expected a CUDA program; write ./flash check FILE.cu'
if [ -n "$player" ]; then
  [ "$machine$program" = checked ] ||
    refuse '--player is given with --sim or -o; expected a checked run, which sees each access; leave them out'
  folder=$(dirname "$player")
  if [ ! -d "$folder" ] || [ ! -w "$folder" ] || [ -d "$player" ]; then
    refuse "--player is $player; expected a file in a folder that can be written; choose another path"
  fi
fi

# CXX, ROOT, LIBRARY, LAUNCHES, FLAGS_checked, FLAGS_sim, LIBRARIES, WRAPPED.
# shellcheck disable=SC1090
. "$settings"

# What runs left that were killed: their number is in the name, and there is no such process any more.
for left in "${TMPDIR:-/tmp}"/flash-check.*.*; do
  owner=${left##*/flash-check.}
  owner=${owner%%.*}
  case $owner in '' | *[!0-9]*) continue ;; esac
  [ -d "/proc/$owner" ] || rm -rf "$left" 2>/dev/null || :
done
work=$(mktemp -d "${TMPDIR:-/tmp}/flash-check.$$.XXXXXX")
child=
trap 'rm -rf "$work"' EXIT
# The program hears Ctrl-C itself, and says where it was; what ends this script alone ends the program, too.
trap '[ -z "$child" ] || wait "$child" || :; exit 130' INT
trap '[ -z "$child" ] || { kill "$child" || :; wait "$child" || :; }; exit 143' TERM
trap '[ -z "$child" ] || { kill "$child" || :; wait "$child" || :; }; exit 129' HUP

# attend PROGRAM [ARGUMENT…]: runs it so that a signal is answered at once and not when it has ended. A program in the
# background would hear no Ctrl-C and have no input.
attend() {
  env --default-signal=INT "$@" <&3 &
  child=$!
  status=0
  wait "$child" || status=$?
  child=
}

if [ "$machine" = checked ]; then
  # shellcheck disable=SC2154
  flags=$FLAGS_checked
  # shellcheck disable=SC2154
  wrap="$WRAPPED -Wl,--wrap=__assert_fail,--undefined=__wrap___assert_fail"
else
  # shellcheck disable=SC2154
  flags=$FLAGS_sim
  wrap=-Wl,--wrap=__assert_fail,--undefined=__wrap___assert_fail
fi

# Of the headers of an installed CUDA none is used, wherever the environment names them.
CPATH=$(without_cuda "${CPATH:-}") CPLUS_INCLUDE_PATH=$(without_cuda "${CPLUS_INCLUDE_PATH:-}")
export CPATH CPLUS_INCLUDE_PATH

# -arch and --profile say what __CUDA_ARCH__ is in kernels, --arch says it of host code, too.
[ -n "$architecture" ] || architecture=-DFLASH_ARCH=${target:-${profile#sm_}0}
# compile FILE OBJECT: the flags are words; what is passed on is quoted.
compile() {
  case $1 in
    *.cpp | *.cc | *.cxx | *.C) kind= ;;  # the host's alone: nothing is included by itself, and nothing is a kernel
    *) kind="$architecture -D__CUDACC__ -D__NVCC__ -include cuda_runtime.h" ;;
  esac
  eval "\"\$LAUNCHES\" \"\$CXX\" $flags -std=$standard -DFLASH_PROGRAM -isystem \"\$ROOT/sim/cuda/include\" \
    -isystem \"\$ROOT\" $pass -x c++ $kind -o \"\$2\" -c \"\$1\"" ||
    refuse "$1 does not compile; the compiler's message is above; docs/check.md says what is not simulated"
}
eval "set -- $files -- $(for word; do quoted "$word"; printf ' '; done)"
objects=
while [ "$1" != -- ]; do
  object=$work/program.$#.o
  compile "$1" "$object"
  objects="$objects $(quoted "$object")"
  shift
done
shift
# The machine (-u: its checks, and cudaDeviceReset with all that the calls of CUDA need) is linked first: of inline
# functions that both have, as those of std::string, the first is taken, and the program's are instrumented: the checks
# would call themselves.
eval "\"\$CXX\" -Wl,-u,__tsan_read4,-u,_Z15cudaDeviceResetv \"\$LIBRARY\" $objects $wrap $link \"\$LIBRARY\" \
  $LIBRARIES -o \"\${program:-\$work/program}\"" ||
  refuse "the program does not link; the linker's message is above; name all of its files"
[ -z "$program" ] || exit 0

FLASH_CHECK="order=$order completion=$completion seed=$seed profile=$profile threads=$threads timeout=$timeout"
FLASH_CHECK="$FLASH_CHECK deterministic=$deterministic sample=$sample"
FLASH_CHECK_STATUS=$work/status
export FLASH_CHECK FLASH_CHECK_STATUS
if [ -n "$player" ]; then
  FLASH_CHECK_PLAYER=$work/player.html
  export FLASH_CHECK_PLAYER
fi
exec 3<&0
if [ "$json" = yes ]; then
  FLASH_CHECK_JSON=$work/report.json
  export FLASH_CHECK_JSON
  attend "$work/program" "$@" 1>&2
  [ ! -e "$FLASH_CHECK_JSON" ] || cat "$FLASH_CHECK_JSON"
else
  attend "$work/program" "$@"
fi

if [ -e "$work/player.html" ]; then
  cp "$work/player.html" "$player.part"
  mv "$player.part" "$player"
fi
findings=0
[ ! -e "$work/status" ] || findings=$(cat "$work/status")
[ "$status" = 0 ] || printf 'flash check: the program ended with status %s%s\n' "$status" \
  "$([ "$status" -lt 129 ] || echo " (signal $((status - 128)))")" >&2
if [ "$findings" != 0 ]; then
  printf 'flash check: %s finding%s\n' "$findings" "$([ "$findings" = 1 ] || echo s)" >&2
  exit 1
fi
[ "$status" = 0 ] || exit 3
printf 'flash check: no findings\n' >&2
