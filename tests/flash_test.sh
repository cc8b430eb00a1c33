#!/bin/sh
# flash_test.sh: what ./flash says and how it exits when something is wrong, from a system without tools.
# Nothing is built or installed here: `./flash test` and `./flash tour` themselves are the test of the rest.
# sh tests/flash_test.sh
set -eu
flash=$(cd "$(dirname "$0")/.." && pwd)/flash
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" # any directory will do
failed=0
path=$PATH

# expect STATUS TEXT ARGUMENT…: ./flash ARGUMENT… exits with STATUS and prints TEXT.
expect() {
  want=$1 text=$2 status=0
  shift 2
  out=$(PATH=$path "$flash" "$@" 2>&1 </dev/null) || status=$?
  case $status:$out in
    "$want":*"$text"*) ;;
    *) failed=1; printf './flash %s: exit %s, want %s and "%s":\n%s\n' "$*" "$status" "$want" "$text" "$out" ;;
  esac
}

expect 0 'usage: ./flash'
expect 0 'usage: ./flash' help
expect 0 'usage: ./flash' --help
expect 2 "command 'walk' is unknown; expected tour, test, run, bench, doctor or help" walk
expect 2 "flag '--fast' is unknown; expected --no-install, --cuda or --help" --fast test
expect 2 "flag '--fast' is unknown; expected --no-install or --cuda" test --fast
expect 2 "phase '77' is unknown; expected one of: 01 02 03 04" test 77
expect 2 "phase 'x/..' is unknown; expected one of: 01" tour x/..
expect 2 "'02' is one argument too many" test 01 02

# A system that has the shell's tools and nothing else.
mkdir bin
for tool in sh dirname readlink nproc id sed sort head tr grep cat env mkdir uname basename; do
  ln -s "$(command -v $tool)" "bin/$tool"
done
path=$work/bin
export FLASH_BUILD="$work/a build"
unset CXX
expect 1 'missing: cmake ninja-build g++' --no-install test
expect 1 'run as root: apt-get install -y --no-install-recommends cmake ninja-build g++' test --no-install
expect 1 "install them with this system's package manager" tour
expect 1 'C++ compiler       MISSING  g++ 12 or newer: apt-get install g++' doctor
printf '#!/bin/sh\nexit 0\n' >bin/apt-get
printf '#!/bin/sh\necho 1000\n' >fake-id
chmod +x bin/apt-get fake-id
mv fake-id bin/id
expect 1 'ask an administrator to run: apt-get install -y --no-install-recommends cmake ninja-build g++' test
printf '#!/bin/sh\nexit 1\n' >bin/sudo
chmod +x bin/sudo
expect 1 'sudo wants a password; run: sudo apt-get install' test
[ ! -e "$FLASH_BUILD" ] || { failed=1; echo 'a build directory was made although tools are missing'; }

[ "$failed" = 0 ] && echo "flash_test: every answer is as promised"
exit "$failed"
