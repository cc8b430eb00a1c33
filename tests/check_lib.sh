# check_lib.sh: what the tests of ./flash check share; sourced, with the build's settings as the first argument. They
# run in a folder of their own, which goes with them.
# . "$(dirname "$0")/check_lib.sh"
# shellcheck shell=sh
settings=$1
root=$(cd "$(dirname "$0")/.." && pwd)
check=$root/sim/cuda/check.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0

# expect STATUS TEXT ARGUMENT…: check ARGUMENT… exits with STATUS and prints TEXT (on stdout or stderr).
expect() {
  want=$1 text=$2 status=0
  shift 2
  sh "$check" "$settings" "$@" >out 2>err </dev/null || status=$?
  case $status:$(cat out err) in
    "$want":*"$text"*) ;;
    *)
      failed=1
      printf 'check %s: exit %s, want %s and "%s":\n' "$*" "$status" "$want" "$text"
      cat out err
      ;;
  esac
}
