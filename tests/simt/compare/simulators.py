# simulators.py: attention forward on numba's CUDA simulator, on Oclgrind and on our two builds (simt_speed),
# one core, CPU time, in rounds that visit all of them; checks the results. Writes docs/results/simulators.json.
# Run: tests/simt/compare_simulators.sh SIMT_SPEED_PROGRAM OUT.json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
here = os.path.dirname(os.path.abspath(__file__))
sys.path += [here, os.path.join(here, "../../bench")]

import numpy

import attention_numba
from results import commit_and_date, first_line, write_results

D = 64
ROUNDS = 3
SCALE_LOG2 = 0.125 / math.log(2)  # the kernels use 2^x


def problem(n):
    rng = numpy.random.default_rng(0)
    return [rng.standard_normal((n, D)).astype(numpy.float32) for _ in range(3)]


def reference(q, k, v):
    s = q.astype(numpy.float64) @ k.T.astype(numpy.float64) / 8
    p = numpy.exp(s - s.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True) @ v.astype(numpy.float64)


def check(name, o, expected):
    error = abs(o - expected).max()
    if not error <= 1e-5:  # a NaN fails too
        sys.exit(f"{name}: wrong result, largest difference {error}")


def numba(n, options):
    q, k, v = problem(n)
    start = time.process_time()
    o = attention_numba.forward(q, k, v, SCALE_LOG2)
    seconds = time.process_time() - start
    check("numba", o, reference(q, k, v))
    return seconds


def oclgrind(n, options):
    q, k, v = problem(n)
    numbers = lambda a: " ".join(repr(float(x)) for x in a.ravel())
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(here, "attention.cl")
        sim = os.path.join(folder, "attention.sim")
        size = 4 * n * D
        with open(sim, "w") as f:
            f.write(f"{source}\nattention\n{n} 1 1\n64 1 1\n\n")
            for a in (q, k, v):
                f.write(f"<size={size}>\n{numbers(a)}\n")
            f.write(f"<size={size} fill=0 dump>\n<size=4>\n{n}\n<size=4>\n{SCALE_LOG2!r}\n")
        command = ["oclgrind-kernel", "--num-threads", "1", "--local-mem-size", "65536", *options, sim]
        start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start
    values = [float(x) for x in re.findall(r"o\[\d+\] = (\S+)", done.stdout)]
    if done.returncode != 0 or len(values) != n * D:
        sys.exit(f"oclgrind: {done.stderr[:500]}{done.stdout[:500]}")
    if done.stderr.strip():
        print(f"# oclgrind {' '.join(options)} said: {done.stderr.strip().splitlines()[0]}", file=sys.stderr)
    check("oclgrind", numpy.array(values).reshape(n, D), reference(q, k, v))
    return seconds


def others(function, options=()):
    """GFLOP/s from the difference of two sizes, so that start-up cancels."""
    small, large = 64, 128
    return 4 * (large**2 - small**2) * D / (function(large, options) - function(small, options)) / 1e9


def ours(bench):
    """GFLOP/s of the fast and of the checked build on one thread, from simt_speed's lines."""
    done = subprocess.run([bench], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{bench}: {done.stdout}{done.stderr}")
    speed = dict(re.findall(r"^(sim|checked) +1 threads +([\d.]+) GFLOP/s", done.stdout, re.MULTILINE))
    return float(speed["sim"]), float(speed["checked"])


def cpu():
    with open("/proc/cpuinfo") as f:
        return re.search(r"model name\s*: (.*)", f.read()).group(1)


if len(sys.argv) != 3:
    sys.exit("usage: simulators.py SIMT_SPEED_PROGRAM OUT.json")
version = re.search(r"\d+\.\d+", first_line("sh", "-c", "oclgrind-kernel --version | grep -m 1 -i oclgrind"))
oclgrind_name = f"Oclgrind {version.group(0) if version else ''}".strip()
everything = "out of bounds, misaligned, uninitialised, races, barriers; all counters"
names = [
    ("`sim`", "none"),
    ("`checked`", everything),
    (f"numba {attention_numba.numba_version}, CUDA simulator", "none"),
    (oclgrind_name, "out of bounds"),
    (oclgrind_name, "and races"),
    (oclgrind_name, "and races, uninitialised"),
]
load = os.getloadavg()[0]
rounds = []
for r in range(ROUNDS):
    rounds.append([
        *ours(sys.argv[1]),
        others(numba),
        others(oclgrind),
        others(oclgrind, ("--data-races",)),
        others(oclgrind, ("--data-races", "--uninitialized")),
    ])
    print(f"round {r + 1}: " + ", ".join(f"{speed:.3g}" for speed in rounds[-1]), flush=True)
rows = [
    {"simulator": name, "checks": checks, "ours": name.startswith("`"), "gflops": round(statistics.median(speeds), 6),
     "slowest": round(min(speeds), 6), "fastest": round(max(speeds), 6)}
    for (name, checks), speeds in zip(names, zip(*rounds))
]
environment = {"cpu": cpu(), "note": f"one core of {os.cpu_count()}, load average {load:.1f}, {ROUNDS} rounds"}
write_results(sys.argv[2], {**environment, **commit_and_date()}, rows)
