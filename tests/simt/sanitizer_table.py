# sanitizer_table.py: the table of what compute-sanitizer and the simulator find in the bug museum.
# The simulator's column comes from `museum_checked` (one line per exhibit: name, variant, kinds of its findings).
# Run: python3 tests/simt/sanitizer_table.py sanitizer-h200.csv SIMULATOR.csv > docs/results/sanitizer-h200.md
import csv
import sys

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
lines = open(sys.argv[1]).read().splitlines()
note = lines[0].lstrip("# ")
runs = {(r["exhibit"], r["variant"], r["tool"]): r for r in csv.DictReader(lines[1:])}
simulator = {(r["exhibit"], r["variant"]): r["kinds"] for r in csv.DictReader(open(sys.argv[2]))}
names = list(dict.fromkeys(name for name, _, _ in runs))


def cell(name, tool):
    run = runs[name, "bug", tool]
    return {"found": "**found**", "silent": "–", "hang": "hangs", "failed": f"fails ({run['exit status']})"}[run["verdict"]]


print("# The bug museum under compute-sanitizer and on the simulator\n")
print(f"Measured on: {note}. Exhibits: `tests/simt/museum.hpp`; each ran in a process of its own, cut off after 20 s.")
print("Made by `tests/simt/sanitizer_table.py` from `tests/simt/sanitizer_table.sh` and the simulator's `museum` program.\n")
print("| exhibit | plain run | " + " | ".join(TOOLS) + " | simulator |")
print("|---|---|" + "---|" * len(TOOLS) + "---|")
for name in names:
    kinds = simulator[name, "bug"]
    ours = f"**{kinds}**" if kinds else "–"
    plain = {"silent": "ends well", "hang": "hangs", "failed": "CUDA error"}[runs[name, "bug", "none"]["verdict"]]
    print(f"| {name} | {plain} | " + " | ".join(cell(name, tool) for tool in TOOLS) + f" | {ours} |")

bugs = len(names)
found = {tool: sum(runs[name, "bug", tool]["verdict"] == "found" for name in names) for tool in TOOLS}
together = sum(any(runs[name, "bug", tool]["verdict"] == "found" for tool in TOOLS) for name in names)
mine = sum(bool(simulator[name, "bug"]) for name in names)
print(f"\nOf {bugs} bugs: " + ", ".join(f"{tool} {found[tool]}" for tool in TOOLS) +
      f"; the four together {together}; the simulator {mine}.\n")
alarms = [f"{tool} on {name}" for name in names for tool in TOOLS if runs[name, "twin", tool]["verdict"] != "silent"]
print("False alarms on the correct twins: " + ("; ".join(alarms) if alarms else "none") + " (compute-sanitizer); " +
      ("; ".join(name for name in names if simulator[name, "twin"]) or "none") + " (simulator).\n")
print("– means silent: the bug is not that tool's subject (racecheck sees shared memory only, initcheck global memory only)")
print("or it was missed. What each tool said first about each bug:\n")
for name in names:
    for tool in TOOLS:
        run = runs[name, "bug", tool]
        if run["first line"]:
            print(f"- {name}, {tool}: `{run['first line']}`")
