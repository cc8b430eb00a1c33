# simulators.py: times attention forward on numba's CUDA simulator and on Oclgrind, one core, and checks their results.
# Prints docs/results/simulators.md: their speeds beside those of our two builds, which tests/bench/simt_speed measures.
# Run: tests/simt/compare_simulators.sh SIMT_SPEED_PROGRAM
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy

import attention_numba

D = 64
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
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "attention.cl")
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


def measure(function, sizes, options=()):
    seconds = [min(function(n, options) for _ in range(2)) for n in sizes]
    flops = [4 * n * n * D for n in sizes]
    return (flops[1] - flops[0]) / (seconds[1] - seconds[0]) / 1e9


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


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True).stdout.strip()


if len(sys.argv) != 2:
    sys.exit("usage: simulators.py SIMT_SPEED_PROGRAM")
fast, checked = ours(sys.argv[1])
version = re.search(r"\d+\.\d+", subprocess.run(["oclgrind-kernel", "--version"], capture_output=True, text=True).stdout)
oclgrind_name = f"Oclgrind {version.group(0) if version else ''}".strip()
rows = [
    ("`sim`", "none", fast),
    ("`checked`", "out of bounds, misaligned, uninitialised, races, barriers; all counters", checked),
    (f"numba {attention_numba.numba_version}, CUDA simulator", "none", measure(numba, (64, 128))),
    (oclgrind_name, "out of bounds", measure(oclgrind, (64, 128))),
    (oclgrind_name, "and races", measure(oclgrind, (64, 128), ("--data-races",))),
    (oclgrind_name, "and races, uninitialised", measure(oclgrind, (64, 128), ("--data-races", "--uninitialized"))),
]
print("# GPU simulators on a CPU: attention forward\n")
print("One thread per query row, Br 64, Bc 32, D 64, fp32, K and V tiles in shared memory; results compared with NumPy in")
print("double precision before anything is printed. One core. GFLOP/s = 4 N^2 D / CPU time: for ours the best of three launches")
print("at N = 1024 (`tests/bench/simt_speed`), for the others the difference of N = 64 and N = 128, so that start-up cancels.\n")
print(f"{cpu()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.0f}; commit {git('rev-parse', '--short', 'HEAD')}; made by `tests/simt/compare_simulators.sh`.\n")
print("| simulator | checks that are on | GFLOP/s | `checked` is faster by | `sim` is faster by |")
print("|---|---|---:|---:|---:|")
for name, checks, speed in rows:
    mine = name.startswith("`")
    print(f"| {name} | {checks} | {speed:.2g} | {'' if mine else f'× {checked / speed:.0f}'} | {'' if mine else f'× {fast / speed:.0f}'} |")
