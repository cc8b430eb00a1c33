#!/bin/sh
# sanitizer_table.sh: runs each exhibit of the bug museum, bug and twin, alone and under each compute-sanitizer tool.
# A run that hangs is cut off after 20 seconds and that is its result. sanitizer_table.py adds the simulator's verdict.
# Run: tests/simt/sanitizer_table.sh MUSEUM_PROGRAM OUTPUT_DIRECTORY "where it was measured"
set -eu
museum=$1 out=$2 note=$3
command -v compute-sanitizer > /dev/null || { echo "$0: compute-sanitizer is not installed" >&2; exit 1; }
runs=$(mktemp -d)

# One run; its verdict: found N errors, silent, hang, or the program's own failure.
cat > "$runs/one.sh" << 'ONE'
museum=$1 runs=$2 name=$3 variant=$4 tool=$5
log=$runs/$name.$variant.$tool
status=0
if [ "$tool" = none ]; then
  timeout -k 5 20 "$museum" "$name" "$variant" > "$log" 2>&1 || status=$?
  errors=
else
  timeout -k 5 20 compute-sanitizer --tool "$tool" --error-exitcode 99 "$museum" "$name" "$variant" > "$log" 2>&1 ||
    status=$?
  errors=$(sed -n -e 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' \
    -e 's/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | tail -n 1)
fi
# The first line that says what was found. A CUDA error that the program would have seen anyway is no finding.
what=$(grep -E '^========= [A-Z]' "$log" | grep -vE 'COMPUTE-SANITIZER|SUMMARY|Program hit|Target application' |
  head -n 1 | sed 's/^========= *//; s/[,\t]/;/g' | cut -c 1-160)
case $status in
  124 | 137) verdict=hang ;;
  0) verdict=silent ;;
  *) verdict=failed ;;
esac
if [ "${errors:-0}" -gt 0 ] && [ -n "$what" ]; then verdict=found; fi
echo "$name,$variant,$tool,$verdict,${errors:-},$status,$what" > "$log.csv"
ONE

# A few at a time: several tools share the GPU, each process has its own kernel. Hanging runs must not starve the rest.
"$museum" --list | cut -f 1 | while read -r name; do
  for variant in bug twin; do
    for tool in none memcheck racecheck initcheck synccheck; do echo "$name $variant $tool"; done
  done
done | xargs -P 10 -L 1 sh "$runs/one.sh" "$museum" "$runs"

{ echo "# $note"
  echo "exhibit,variant,tool,verdict,errors,exit status,first line"
  "$museum" --list | cut -f 1 | while read -r name; do
    for variant in bug twin; do
      for tool in none memcheck racecheck initcheck synccheck; do cat "$runs/$name.$variant.$tool.csv"; done
    done
  done
} > "$out/sanitizer-h200.csv"
(cd "$runs" && for f in *.bug.*check; do echo "##### $f"; head -c 1500 "$f"; echo; done) |
  gzip > "$out/sanitizer-logs.txt.gz"
rm -rf "$runs"
