#!/bin/sh
# phase-diffs.sh: how much changes from each kernel phase to the next: lines of attention.cuh, comments included.
# A line that changed counts as one added and one removed; the phase's own number in paths and names is left out.
# Run: docs/phase-diffs.sh        Markdown: | from | to | lines | added | removed |
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

before=
echo '| from | to | lines | added | removed |'
echo '|---|---|---:|---:|---:|'
for file in phases/0[5-8]-*/attention.cuh; do
  phase=$(basename "$(dirname "$file")")
  number=${phase%%-*}
  # Without the head of three lines, which is different anyway, and the markers of regions; the namespace is phaseNN's.
  sed -e 1,3d -e "/^ *\/\/ #\(end\)\{0,1\}region/d" -e "s/phase$number/phaseNN/g" "$file" > "$work/$phase"
  if [ -n "$before" ]; then
    diff -U0 "$work/$before" "$work/$phase" > "$work/diff" || true
    added=$(grep -c '^+[^+]' "$work/diff" || true)
    removed=$(grep -c '^-[^-]' "$work/diff" || true)
    echo "| $before | $phase | $(grep -vc "^ *// #\(end\)\{0,1\}region" "$file") | $added | $removed |"
  fi
  before=$phase
done
