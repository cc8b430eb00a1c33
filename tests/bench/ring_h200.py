# ring_h200.py: phase 30 on the GPUs of this host beside one of them: ratios and the longest sequence, by ring_bench.
# python3 tests/bench/ring_h200.py BUILD/bin/ring_bench OUT.json [--trace FILE]      needs two GPUs and NCCL; minutes
import argparse
import json
import os
import subprocess
import time

from results import gpu_environment, write_results

SHAPES = [  # rows, layout, backward
    (4096, "zig-zag", 0), (16384, "zig-zag", 0), (65536, "zig-zag", 0), (16384, "striped", 0), (65536, "striped", 0),
    (65536, "contiguous", 0), (16384, "zig-zag", 1), (65536, "zig-zag", 1), (65536, "striped", 1)]
STEP = 16384  # rows, between which the longest sequence is told


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
    return json.loads(done.stdout)


def longest(program, what, group):
    """The most rows, in steps, that a forward pass of 256 heads has room for; and how long that pass takes, in ms."""
    best, ms, above, rows = 0, None, None, 20 * STEP
    while above is None or above - best > STEP:
        line = bench(program, what=what, rows=rows, heads=256, group=group, rounds=1, timeout=60)
        if line:
            best, ms = rows, line["one_ms"] if what == "one" else line["ring_ms"]
        else:
            above = rows
        rows = best * 3 // 2 // STEP * STEP if above is None else (best + above) // 2 // STEP * STEP
        if rows in (best, above):
            break
    return {"what": what, "heads": 256, "group": group, "rows": best, "ms": ms}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("out")
    parser.add_argument("--trace", default="")
    asked = parser.parse_args()
    rows, long = [], []
    for S, layout, backward in SHAPES:
        begin = time.time()
        line = bench(asked.program, rows=S, layout=layout, backward=backward,
                     trace=asked.trace if (S, layout, backward) == (16384, "zig-zag", 0) else "")
        if line:
            rows.append(line)
            print(S, layout, "both" if backward else "forward", line["ratio"], line["apart"],
                  f"{time.time() - begin:.0f} s", flush=True)
    for what, group in (("one", 0), ("ring", 0), ("ring", 16)):
        long.append(longest(asked.program, what, group))
        print(long[-1], flush=True)
    write_results(asked.out, gpu_environment(), [{"kind": "ring", **row} for row in rows] +
                  [{"kind": "longest", **row} for row in long])


if __name__ == "__main__":
    main()
