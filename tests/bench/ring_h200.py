# ring_h200.py: phase 30 on the GPUs of this host beside one of them: ratios and the longest sequence, by ring_bench.
# python3 tests/bench/ring_h200.py BUILD/bin/ring_bench OUT.json      needs two GPUs and NCCL; five minutes
import argparse
import json
import os
import subprocess
import tempfile

from results import gpu_environment, write_results

SHAPES = [  # rows, layout, backward, multiprocessors to spare, ms of rest before each turn
    *((rows, layout, 0, 0, 0) for rows in (4096, 16384, 65536) for layout in ("zig-zag", "striped", "ulysses")),
    (65536, "contiguous", 0, 0, 0),
    *((rows, layout, 1, 0, 0) for rows in (16384, 65536) for layout in ("zig-zag", "striped", "ulysses")),
    *((rows, "zig-zag", backward, spare, 0) for rows, backward in ((16384, 0), (65536, 0), (65536, 1))
      for spare in (4, 8, 16)),
    *((rows, "zig-zag", backward, 0, 100) for rows in (16384, 65536) for backward in (0, 1))]
HEADS, DIM, STEP = 256, 128, 16384  # of the longest sequence; rows between which it is told


def bench(program, seconds=120, **flags):
    """A line of ring_bench, or None where it ended with an error (no room, or a rank that is lost)."""
    words = [word for flag, value in flags.items() for word in ("--" + flag.replace("_", "-"), str(value))]
    # Without NVLink's multicast: it is not to be had in every container.
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=seconds,
                          env=dict(os.environ, NCCL_NVLS_ENABLE="0"))
    if done.returncode == 77:
        raise SystemExit(done.stdout.strip())
    if done.returncode != 0:
        print(done.stderr.strip().splitlines()[-1:], flush=True)
        return None
    line = {name: int(x) if isinstance(x, str) and x.isdigit() else x for name, x in json.loads(done.stdout).items()}
    return {name: x for name, x in line.items() if name not in ("causal", "timeout", "trace", "what")}


def longest(program, what, group):
    """The most rows, in steps, that a forward pass has room for; and how long that pass takes, in ms."""
    memory = int(subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], text=True,
                                capture_output=True).stdout.split()[0]) * 2**20
    # Q, K, V, O take 8 bytes a token and column; of the heads that are on their way the sum in fp32, and K and V that
    # come, and what a call leaves, 12 more (docs: phase 30). LSE and others are a number for each row and head.
    on_their_way = 0 if what == "one" else (group or HEADS) / HEADS
    bytes_a_row = HEADS * DIM * (8 + 12 * on_their_way) / (1 if what == "one" else 2)
    rows = int((memory - 2**31) / bytes_a_row) // STEP * STEP
    best, ms, above = 0, None, None
    while rows and (above is None or rows < above) and rows > best:
        line = bench(program, what=what, rows=rows, heads=HEADS, group=group, rounds=0)
        if line:
            best, ms = rows, line["one_ms"] if what == "one" else line["ring_ms"]
        else:
            above = rows
        rows += STEP if line else -STEP
    return {"what": what, "heads": HEADS, "group": group, "rows": best, "ms": ms}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("out")
    asked = parser.parse_args()
    rows = []
    for S, layout, backward, spare, rest in SHAPES:
        line = bench(asked.program, rows=S, layout=layout, backward=backward, spare=spare, rest=rest)
        if line:
            rows.append({"kind": "ring", **line})
            print(S, layout, "both" if backward else "forward", spare, rest, line["one_ms"], line["ring_ms"],
                  line["ratio"], line["apart"], flush=True)
    for what, group in (("one", 0), ("ring", 0), ("ring", 16)):
        rows.append({"kind": "longest", **longest(asked.program, what, group)})
        print(rows[-1], flush=True)
    with tempfile.TemporaryDirectory() as folder:  # what each stream did in one turn
        bench(asked.program, rows=16384, backward=1, rest=100, trace=f"{folder}/trace")
        with open(f"{folder}/trace", encoding="utf-8") as trace:
            rows += [{"kind": "trace", **json.loads(line)} for line in trace]
    write_results(asked.out, gpu_environment(), rows)


if __name__ == "__main__":
    main()
