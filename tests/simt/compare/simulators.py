# simulators.py: times attention forward on numba's CUDA simulator and on Oclgrind, one core, and checks their results.
# Prints CSV: simulator, checks that are on, N, CPU seconds, GFLOP/s.
# GFLOP/s is 4 N N D / CPU time between two sizes, so that start-up cancels and other processes do not count.
# Run: tests/simt/compare_simulators.sh (needs numba and oclgrind; on Debian 12 python3-numba and oclgrind)
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
    o = attention_numba.forward(q, k, v, 0.125)
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
            f.write(f"<size={size} fill=0 dump>\n<size=4>\n{n}\n<size=4>\n0.125\n")
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


def measure(name, checks, function, sizes, options=()):
    seconds = []
    for n in sizes:
        seconds.append(min(function(n, options) for _ in range(2)))
    flops = [4 * n * n * D for n in sizes]
    speed = (flops[1] - flops[0]) / (seconds[1] - seconds[0]) / 1e9
    print(f"{name},{checks},{sizes[1]},{seconds[1]:.3f},{speed:.6f}", flush=True)


print("simulator,checks,N,seconds,GFLOP/s")
measure("numba's CUDA simulator", "none", numba, (64, 128))
measure("Oclgrind", "out of bounds", oclgrind, (64, 128))
measure("Oclgrind", "out of bounds; races", oclgrind, (64, 128), ("--data-races",))
measure("Oclgrind", "out of bounds; races; uninitialised", oclgrind, (64, 128), ("--data-races", "--uninitialized"))
