#!/bin/sh
# json.sh: the lines of run.sh ("caught    NAME, by: WHO", "SURVIVED  NAME", "BROKEN    NAME: WHY") as a results file,
# in the order of their names; flash-tables makes docs/results/mutants.md from it.
# ./flash test --mutants | tests/mutants/json.sh > docs/results/mutants.json
set -eu
commit=${FLASH_COMMIT:-$(git rev-parse --short HEAD 2> /dev/null || echo unknown)}

# A kind, so that each gets a table of its own: deleted barriers, or the program whose tests must notice.
rows=$(sed -n 's/^\(caught\|SURVIVED\|BROKEN\)  *\([^,: ]*\)[,:]* *\(by: \)\{0,1\}\(.*\)$/\1\t\2\t\4/p' |
  awk -F '\t' -v OFS='\t' '{ kind = $2; sub(/\/.*/, "", kind); name = $2; sub(/^[^\/]*\//, "", name)
    if (name ~ /^barrier@/) { kind = "deleted barriers"; sub(/^barrier@phases\//, "", name); sub(/@/, ":", name) }
    print kind, name, $1, $3 }' | LC_ALL=C sort |
  awk -F '\t' '{ gsub(/[\\"]/, "\\\\&", $4)
      printf "%s    {\"kind\": \"%s\", \"mutant\": \"%s\", \"verdict\": \"%s\", \"by\": \"%s\"}", \
        separator, $1, $2, $3, $4
      separator = ",\n" }')
[ -n "$rows" ] || { echo "json.sh: no line of run.sh on standard input" >&2; exit 2; }
printf '{\n  "environment": {\n    "commit": "%s",\n    "date": "%s"\n  },\n  "rows": [\n%s\n  ]\n}\n' \
  "$commit" "$(date -u +%Y-%m-%d)" "$rows"
