# sanitizer_table.py: the table of what compute-sanitizer and the simulator find in the bug museum.
# The simulator's column comes from `museum_checked --all` (a line per run: exhibit, variant, whose subject, kinds).
# Run: python3 tests/simt/sanitizer_table.py sanitizer-h200.csv SIMULATOR.csv > docs/results/sanitizer-h200.md
import csv
import sys

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
lines = open(sys.argv[1]).read().splitlines()
note = lines[0].lstrip("# ").replace("; those", ";\nthose")
runs = {(r["exhibit"], r["variant"], r["tool"]): r for r in csv.DictReader(lines[1:])}
ours = list(csv.DictReader(open(sys.argv[2])))
simulator = {(r["exhibit"], r["variant"]): r["kinds"] for r in ours}
subject = {r["exhibit"]: r["tool"] for r in ours}
names = list(subject)


def verdict(name, variant, tool):
    run = runs.get((name, variant, tool))
    return run["verdict"] if run else "not run"


def cell(name, tool):
    words = {"found": "**found**", "hang": "hangs", "silent": "missed" if tool == subject[name] else "–",
             "failed": "CUDA error" if tool == subject[name] else "–"}
    return words.get(verdict(name, "bug", tool), "not run")


print("# The bug museum under compute-sanitizer and on the simulator\n")
print(f"Measured on: {note}.\nExhibits: those of")
print("`tests/simt/museum.hpp` at that commit; each ran in a process of its own, cut off after 20 s.")
print("Made by `tests/simt/sanitizer_table.py` from `tests/simt/sanitizer_table.sh` and `museum_checked --all`.\n")
print("| exhibit | plain run | " + " | ".join(TOOLS) + " | simulator |")
print("|---|---|" + "---|" * len(TOOLS) + "---|")
for name in names:
    kinds = simulator[name, "bug"]
    plain = {"silent": "ends", "hang": "hangs", "failed": "CUDA error"}.get(verdict(name, "bug", "none"), "not run")
    found = [cell(name, tool) for tool in TOOLS] + [f"**{kinds}**" if kinds else "–"]
    print(f"| {name} | {plain} | " + " | ".join(found) + " |")

print("\n**found**: reported. missed: silent, though this is the tool's subject. –: not its subject (racecheck sees")
print("shared memory only, initcheck global memory only, synccheck barriers, none of them races in global memory).")
print("hangs: cut off.\n")
found = {tool: sum(verdict(name, "bug", tool) == "found" for name in names) for tool in TOOLS}
together = sum(any(verdict(name, "bug", tool) == "found" for tool in TOOLS) for name in names)
mine = sum(bool(simulator[name, "bug"]) for name in names)
print(f"Of {len(names)} bugs: " + ", ".join(f"{tool} {found[tool]}" for tool in TOOLS) +
      f"; the four together {together}; the simulator {mine}.")
print("The exhibits whose names begin with `blind` are there because nothing here can see them. The museum was made")
print("for the simulator's detectors, so the sum says what they cover, not how often such bugs occur.\n")
alarms = [f"{tool} on {name}" for name in names for tool in TOOLS
          if verdict(name, "twin", tool) not in ("silent", "not run")]
print("False alarms on the correct twins:")
for alarm in alarms:
    print(f"- compute-sanitizer: {alarm}")
print("- simulator: " + (", ".join(name for name in names if simulator[name, "twin"]) or "none") + "\n")
print("What each tool said first:\n\n| exhibit | tool | words |\n|---|---|---|")
for name in names:
    for tool in TOOLS:
        run = runs.get((name, "bug", tool))
        if run and run["first line"]:
            words = run["first line"].replace("flash::on_gpu::", "").replace(";", ",")
            print(f"| {name} | {tool} | `{words}` |")
