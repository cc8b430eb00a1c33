#!/usr/bin/env python3
# sass.py: what nvcc made of the steps of phase 13: registers, and the instructions that a warp issues for a K/V tile
# which is seen whole, is not the last, and lets no maximum grow. No GPU needed; cuobjdump is part of the CUDA toolkit.
# tests/bench/sass.py BUILD/CMakeFiles/phase13_steps_kernel_gpu.dir/phases/13-instruction-diet/steps/host.cu.o OUT.json
import os
import re
import subprocess
import sys

from results import commit_and_date, write_results

CUOBJDUMP = os.environ.get("CUOBJDUMP", "cuobjdump")
STEPS = {"phase12": "0-copies", "scale": "1-scale", "loops": "2-loops", "addresses": "3-addresses",
         "output": "4-output", "row_tiles": "5-tiles", "state": "5-state", "more_rows": "5-rows",
         "longest_first": "5-order", "rare_rescale": "6-rescale", "maximum": "7-maximum", "beside": "8-beside"}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def functions(path):
    """Of an object or a cubin: (symbol, code) for each kernel; code: [(address, text)]."""
    for function in output(CUOBJDUMP, "-sass", path).split("Function : ")[1:]:
        yield (function.split("\n", 1)[0],
               [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,5})\*/ +(.*?) *;", function)])


def step_of(symbol):
    found = re.search(r"(phase1[23])6on_gpu(?:\d+([a-z_]+?))?9attention", symbol)  # phase 12's own, or a step's
    return STEPS.get(found.group(2) or found.group(1)) if found else None


def target(instruction):
    return int(re.search(r"BRA.*?0x([0-9a-f]+)", instruction).group(1), 16)


def issued(code):
    """The instructions of one round of the last loop with mma; code: [(address, text)]."""
    back = [(target(text), at) for at, text in code if re.search(r"\bBRA\b.*0x", text) and target(text) <= at]
    first, last = [(lo, hi) for lo, hi in back if any("HMMA" in t for at, t in code if lo <= at <= hi)][-1]
    path, goal = [], first
    for at, text in code:
        if at < goal or at > last:
            continue
        path.append(text)
        goal = at
        if not re.search(r"\bBRA\b.*0x", text) or target(text) <= at:
            continue
        # What is jumped over: the next copies and the integer maximum are done, all else is the exception.
        over = [t for a, t in code if at < a < target(text)]
        if not text.startswith("@") or not any("LDGSTS" in t or "VIMNMX3" in t for t in over):
            goal = target(text)
    return path


def registers_of(text, operand, count):
    """Of an operand that is `count` registers in a row, as R4 is R4 to R7."""
    first = re.match(r"R(\d+)", text.split(None, 1)[1].split(", ")[operand])
    return set(range(int(first.group(1)), int(first.group(1)) + count)) if first else set()


def waited_for(path):
    """How many ldmatrix bring what the next mma or the one after it needs: nothing hides the time that they take."""
    count = 0
    for i, load in enumerate(path):
        if "LDSM" in load:
            loaded = registers_of(load, 0, 4)
            after = [text for text in path[i + 1:] if "HMMA" in text][:2]
            count += any(loaded & (registers_of(text, 1, 4) | registers_of(text, 2, 2)) for text in after)
    return count


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tests/bench/sass.py OBJECT OUT.json")
    registers = {}
    for name, use in re.findall(r"Function (\S+):\n\s*(.*)", output(CUOBJDUMP, "-res-usage", sys.argv[1])):
        registers[name] = {key: int(value) for key, value in re.findall(r"(REG|STACK):(\d+)", use)}
    rows = []
    for symbol, code in functions(sys.argv[1]):
        step = step_of(symbol)
        if not step:
            continue
        path = issued(code)
        kinds = {"mma": "HMMA", "ldmatrix": "LDSM", "ex2": "MUFU"}
        rows.append({"kernel": step, "registers": registers[symbol]["REG"], "spilled": registers[symbol]["STACK"],
                     "instructions": len(path),
                     **{name: sum(word in text for text in path) for name, word in kinds.items()},
                     "waited_for": waited_for(path)})
    if sorted(row["kernel"] for row in rows) != sorted(STEPS.values()):
        sys.exit("sass.py: not the steps in " + sys.argv[1])
    rows.sort(key=lambda row: list(STEPS.values()).index(row["kernel"]))
    version = re.search(r"V(\d\S*)", output(os.environ.get("NVCC", "nvcc"), "--version")).group(1)
    note = f"nvcc {version}, sm_90: read from the machine code"
    write_results(sys.argv[2], {"note": note, **commit_and_date()}, rows)


if __name__ == "__main__":
    main()
