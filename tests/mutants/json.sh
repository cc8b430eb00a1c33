#!/bin/sh
# json.sh: the lines of run.sh and kernels.sh ("caught    NAME, by: WHO", "SURVIVED  NAME", "BROKEN    NAME: WHY") as a
# results file, in the order of their names; flash-tables makes docs/results/mutants.md from it.
# { tests/mutants/run.sh; tests/mutants/kernels.sh; } | tests/mutants/json.sh > docs/results/mutants.json
set -eu
commit=${FLASH_COMMIT:-$(git rev-parse --short HEAD 2> /dev/null || echo unknown)}

# A kind, so that each gets a table of its own: 1 patches of CPU phases (01-04), 2 patches of kernels, 3 barriers.
rows=$(sed -n 's/^\(caught\|SURVIVED\|BROKEN\)  *\([^,: ]*\)[,:]* *\(by: \)\{0,1\}\(.*\)$/\1\t\2\t\4/p' |
  awk -F '\t' -v OFS='\t' '{ print ($2 ~ /-barrier-/) ? 3 : ($2 ~ /^0[1-4]-/) ? 1 : 2, $2, $1, $3 }' | LC_ALL=C sort |
  awk -F '\t' 'BEGIN { kind[1] = "wrong CPU phases"; kind[2] = "wrong kernels"; kind[3] = "deleted barriers" }
    { gsub(/[\\"]/, "\\\\&", $4)
      printf "%s    {\"kind\": \"%s\", \"mutant\": \"%s\", \"verdict\": \"%s\", \"by\": \"%s\"}", \
        separator, kind[$1], $2, $3, $4
      separator = ",\n" }')
[ -n "$rows" ] || { echo "json.sh: no line of run.sh or kernels.sh on standard input" >&2; exit 2; }
printf '{\n  "environment": {\n    "commit": "%s",\n    "date": "%s"\n  },\n  "rows": [\n%s\n  ]\n}\n' \
  "$commit" "$(date -u +%Y-%m-%d)" "$rows"
