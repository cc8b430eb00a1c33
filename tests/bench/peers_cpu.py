#!/usr/bin/env python3
# peers_cpu.py: phase 04 against PyTorch's scaled_dot_product_attention on the CPU, fp32, on the same numbers: torch's
# time divided by ours. Each is a process of its own with the same threads; both results are checked against fp64 before
# anything is timed; then they take turns, and the median of the turns' ratios counts: a busy machine hurts both.
# python3 tests/bench/peers_cpu.py build/release/bin/flash-bench [--install FOLDER] [--quick] [--json FILE]
# On more than two cores: taskset -c 0,1 python3 … ; needs torch (2.0 or newer) and numpy, a network only to --install.
import argparse
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv

from results import commit_and_date, write_results

B, H = 1, 8  # as in bench.cpp


def find_torch(folder):
    """Goes on in the Python of `folder`, where torch is installed first; about 5 GB, since PyPI's torch is CUDA's."""
    if os.path.abspath(folder) == sys.prefix:
        return
    python = os.path.join(os.path.abspath(folder), "bin", "python")
    if not os.path.exists(python):
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "numpy"], check=True)
    os.execv(python, [python, *sys.argv])


def status_mib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name + ":"))


def serve(folder, N, D, mask, threads):
    """As serve() in bench.cpp: "ready", then per line of input one run and its milliseconds."""
    import torch

    torch.set_num_threads(threads)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.from_file(f"{folder}/{x}.raw", size=B * H * N * D).reshape(B, H, N, D).clone() for x in "qkv")
    sdpa(*(x[:, :, :16] for x in (q, k, v)), is_causal=mask != "none")
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = status_mib("VmRSS")
    print("ready", flush=True)
    for i, _ in enumerate(sys.stdin):
        begin = time.perf_counter()
        o = sdpa(q, k, v, is_causal=mask != "none")
        answer = f"{1e3 * (time.perf_counter() - begin):.6f}"
        if i == 0:  # sdpa allocates O itself; it is a tensor as Q, K and V are
            answer += f" {status_mib('VmHWM') - before - 4 * B * H * N * D / 2**20:.3f}"
            o.numpy().tofile(f"{folder}/torch.raw")
        print(answer, flush=True)


class Server:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")

    def expect(self, what=""):
        line = self.process.stdout.readline()
        if not line or what not in line:
            sys.exit(f"{self.process.args[0]}: expected '{what or 'a time'}', got '{line.strip()}'")
        return [float(x) for x in line.split()] if not what else []

    def run(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.expect()

    def sample(self, seconds):
        """Median of as many runs as fit, at least one."""
        times = []
        while not times or sum(times) + times[0] < 1e3 * seconds:
            times += self.run()
        return statistics.median(times)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def error(folder, name, q, k, v, causal):
    """Relative error (Frobenius) of 64 rows of every head against fp64; NaN stays NaN."""
    import torch

    N, D = q.shape[2:]
    o = torch.from_file(f"{folder}/{name}.raw", size=q.numel()).reshape(q.shape)
    rows = torch.unique(torch.cat([torch.tensor([0, N - 1]), torch.randint(N, (62,))]))
    s = q[:, :, rows].double() @ k.double().mT / math.sqrt(D)
    if causal:
        s.masked_fill_(torch.arange(N) > rows[:, None], -math.inf)
    want = torch.softmax(s, -1) @ v.double()
    return float((o[:, :, rows].double() - want).norm() / want.norm())


def measure(bench, N, D, causal, threads, rounds, seconds):
    import torch

    torch.manual_seed(2026)
    q, k, v = (torch.randn(B, H, N, D) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        for name, x in zip("qkv", (q, k, v)):
            x.numpy().tofile(f"{folder}/{name}.raw")
        case = ["--serve", folder, str(N), str(D), "top-left" if causal else "none", str(threads)]
        ours, peer = Server(bench, *case), Server(sys.executable, __file__, *case)
        memory = [server.run()[1] for server in (ours, peer)]
        errors = [error(folder, name, q, k, v, causal) for name in ("ours", "torch")]
        if not max(errors) <= 2e-6 or any(math.isnan(e) for e in errors):
            sys.exit(f"N {N}, D {D}, causal {causal}: wrong, not timed: errors {errors}")
        turns = []
        for i in range(rounds):  # ours first, torch first, ours first …
            a = ours.sample(seconds) if i % 2 == 0 else None
            b = peer.sample(seconds)
            turns.append((a or ours.sample(seconds), b))
        ours.close()
        peer.close()
    ratios = sorted(b / a for a, b in turns)
    return {
        "D": D, "N": N, "causal": causal, "ratio": statistics.median(ratios), "lowest": ratios[0],
        "highest": ratios[-1], "ours_ms": statistics.median(a for a, _ in turns),
        "torch_ms": statistics.median(b for _, b in turns), "ours_mib": memory[0], "torch_mib": memory[1],
    }  # fmt: skip


def processor():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine())


def main():
    parser = argparse.ArgumentParser(description="Phase 04 against PyTorch's attention on the CPU.")
    parser.add_argument("bench", help="the program flash-bench")
    parser.add_argument("--install", metavar="FOLDER", help="use this virtual environment's torch; made if missing")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="N = 1024 and 2048 only")
    parser.add_argument("--json", metavar="FILE", help="all figures, for docs/results/tables.py")
    parser.add_argument("--note", default="", help="what the file says beside the processor: the library of products")
    args = parser.parse_args()
    try:
        import numpy  # noqa: F401, torch's way to files
        import torch
    except ImportError as problem:
        if args.install:
            find_torch(args.install)
        sys.exit(f"torch or numpy is missing ({problem}); pip install torch numpy, or pass --install FOLDER")

    where = {"cpu": processor(), "threads": args.threads, "torch": torch.__version__,
             "capability": torch.backends.cpu.get_cpu_capability()}  # fmt: skip
    print(", ".join(f"{name} {value}" for name, value in where.items()), f"B{B} H{H} fp32", sep=", ")
    print("ratio: torch's time / ours, median of the turns [lowest, highest]; MiB: peak memory above Q, K, V, O\n")
    print("|   D |    N | mask   | ours ms | torch ms | ratio |  lowest, highest | ours MiB | torch MiB |")
    print("|----:|-----:|--------|--------:|---------:|------:|-----------------:|---------:|----------:|")
    rows = []
    for D in (64, 128):
        for causal in (False, True):
            for N in (1024, 2048) if args.quick else (1024, 2048, 4096, 8192):
                r = measure(args.bench, N, D, causal, args.threads, args.rounds, 0.3)
                rows.append(r)
                mask = "causal" if causal else "none  "
                print(f"| {D:3} | {N:4} | {mask} | {r['ours_ms']:7.1f} | {r['torch_ms']:8.1f} "
                      f"| {r['ratio']:5.2f} | {r['lowest']:7.2f}, {r['highest']:7.2f} "
                      f"| {r['ours_mib']:8.1f} | {r['torch_mib']:9.1f} |", flush=True)  # fmt: skip
    print(f"\nlowest ratio {min(r['ratio'] for r in rows):.2f}")
    if args.json:
        note = f"{args.threads} threads" + (f"; {args.note}" if args.note else "")
        where = {"cpu": where["cpu"], "torch": where["torch"], "note": note, **commit_and_date()}
        write_results(args.json, where, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
    else:
        main()
