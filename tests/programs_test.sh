#!/bin/sh
# programs_test.sh: well-known CUDA programs under ./flash check: right and without findings in every order, and with
# the defect that each plants when it has an argument, a finding at the line that its mark names: //@ race.
# sh tests/programs_test.sh SETTINGS [program…], SETTINGS as the build writes it
set -eu
settings=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
FLASH_CHECK_STATUS=$work/findings
export FLASH_CHECK_STATUS

wrong() {
  failed=1
  printf '%s: %s\n' "$name" "$*"
  cat "$work/out" "$work/err"
}

[ $# -gt 0 ] || set -- "$root"/tests/simt/programs/*.cu
for file; do
  name=$(basename "$file" .cu)
  : >"$work/out"
  if ! sh "$root/sim/cuda/check.sh" "$settings" -o "$work/$name" "$file" 2>"$work/err"; then
    wrong 'does not compile'
    continue
  fi
  for order in forward 'reverse completion=eager' 'random completion=random seed=1'; do
    FLASH_CHECK="order=$order" "$work/$name" >"$work/out" 2>"$work/err" || wrong "failed, order $order"
    [ "$(cat "$work/out")" = "$name: right" ] || wrong "does not say that it is right, order $order"
    [ "$(cat "$work/findings")" = 0 ] || wrong "has findings, order $order"
  done

  FLASH_CHECK='order=forward threads=1' "$work/$name" defect >"$work/out" 2>"$work/err" || true
  marks=$(sed -n '\|//@ |=' "$file")
  [ -n "$marks" ] || wrong 'marks no line'
  for line in $marks; do
    kind=$(sed -n "${line}s|.*//@ ||p" "$file")
    # The finding's first line, then the sites, until the remedy.
    awk -v kind="$kind:" -v site="$name.cu:$line " '
      index($0, kind) == 1 { inside = 1 }
      /remedy:/ { inside = 0 }
      inside && index($0, site) { found = 1 }
      END { exit !found }' "$work/err" || wrong "no finding \"$kind\" at line $line with the defect"
  done
done

[ "$failed" = 0 ] && echo 'programs_test: all right, and all defects found'
exit "$failed"
