# peers_h200.py: PyTorch's attention backends on the sweeps of cases.hpp, measured as flash-gpu-bench measures the
# phases, into the same JSON: verified against fp64 on sampled rows, warmed up, L2 flushed, CUDA events, median, clock.
# python3 tests/bench/peers_h200.py OUT.json     (torch 2.5 or newer; math only in naive-vs-flash, beside our naive)
import math
import re
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from results import gpu_environment, write_results

BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch math": SDPBackend.MATH,
}


def cases():
    """As cases() in cases.hpp."""
    for D in (64, 16):
        for causal in (False, True):
            for N in (512, 1024, 2048, 4096, 8192):
                yield "kernels", 4, 48, N, D, causal
    for causal in (False, True):
        yield "kernels", 8, 32, 4096, 128, causal
    for N in (512, 1024, 2048, 4096, 8192, 16384):
        yield "naive-vs-flash", 4, 32, N, 64, False
    for N in range(256, 4097, 128):
        yield "steps", 4, 12, N, 64, False


def sampled_error(q, k, v, o, causal):
    """Relative error of 32 rows against fp64, and that of the exact rows rounded to fp16."""
    if not torch.isfinite(o).all():
        return math.nan, math.nan
    B, H, N, D = q.shape
    got, want = [], []
    generator = torch.Generator().manual_seed(2026)
    for r in range(32):
        b, h, i = (int(torch.randint(n, (1,), generator=generator)) for n in (B, H, N))
        i = 0 if r == 0 else N - 1 if r == 1 else i
        keys = i + 1 if causal else N
        s = k[b, h, :keys].double() @ q[b, h, i].double() / math.sqrt(D)
        want.append(torch.softmax(s, 0) @ v[b, h, :keys].double())
        got.append(o[b, h, i].double())
    got, want = torch.stack(got), torch.stack(want)
    norm = want.norm()
    return float((got - want).norm() / norm), float((want.half().double() - want).norm() / norm)


def once(work, spoiler):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    spoiler.zero_()  # twice what the L2 cache holds
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def quantile(ordered, q):
    at = q * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def timing(work, spoiler, most=100):
    """As gpu/timer.cuh and gpu/timing.hpp."""
    warm, count = 0.0, 0
    while warm < 50 and count < 1000:
        warm += once(work, spoiler)
        count += 1
    x = []
    while True:
        x.append(once(work, spoiler))
        n, mean = len(x), sum(x) / len(x)
        spread = math.sqrt(sum((t - mean) ** 2 for t in x) / (n - 1) / n) if n > 1 else math.inf
        if n >= most or (n >= 10 and spread <= 0.005 * mean) or (n >= 3 and sum(x) >= 300):
            break
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    cycles = 2_000_000
    begin.record()
    torch.cuda._sleep(cycles)  # a kernel that idles for so many SM clock cycles
    end.record()
    end.synchronize()
    x.sort()
    return {
        "samples": len(x),
        "median_ms": quantile(x, 0.5),
        "p10_ms": quantile(x, 0.1),
        "p90_ms": quantile(x, 0.9),
        "sm_mhz": cycles / begin.elapsed_time(end) / 1000,
    }


def measure(name, sweep, B, H, N, D, causal, spoiler):
    pairs = B * H * (N * (N + 1) // 2 if causal else N * N)
    row = {"sweep": sweep, "kernel": name, "B": B, "H": H, "N": N, "D": D, "causal": causal, "type": "float16"}
    row["flops"] = 4 * pairs * D
    torch.manual_seed(2026)
    q, k, v = (torch.randn(B, H, N, D, device="cuda", dtype=torch.float16) for _ in range(3))
    try:
        with sdpa_kernel(BACKENDS[name]), torch.no_grad():
            error, floor = sampled_error(q, k, v, sdpa(q, k, v, is_causal=causal), causal)
            # torch's math backend rounds S to fp16, so its bar cannot be ours; it must still be a right answer.
            if not error <= (10 if name == "torch math" else 1.5) * floor + 2**-24:
                print(f"{name} {sweep} N {N} D {D} causal {causal}: error {error:.2e}, floor {floor:.2e}: not timed")
                return None
            times = timing(lambda: sdpa(q, k, v, is_causal=causal), spoiler)
    except torch.cuda.OutOfMemoryError as e:
        wanted = re.search(r"Tried to allocate ([0-9.]+) ([KMG]iB)", str(e))
        unit = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        row["out_of_memory_bytes"] = int(float(wanted[1]) * unit[wanted[2]]) if wanted else 0
        return row
    except RuntimeError as e:
        print(f"{name} {sweep} N {N} D {D}: refused: {str(e).splitlines()[0]}")
        return None
    row.update(times)
    row["tflops"] = row["flops"] / row["median_ms"] * 1e-9
    row["error"], row["rounding_floor"] = error, floor
    return row


def main():
    out, environment = sys.argv[1], gpu_environment()
    spoiler = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
    rows = []
    for sweep, B, H, N, D, causal in cases():
        for name in BACKENDS:
            if name == "torch math" and sweep != "naive-vs-flash":
                continue
            row = measure(name, sweep, B, H, N, D, causal, spoiler)
            if row is None:
                continue
            rows.append(row)
            speed = "   out of memory"
            if "tflops" in row:
                speed = f"{row['tflops']:8.1f} TFLOP/s {row['median_ms']:9.4f} ms"
            print(f"{sweep} B{B} H{H} N {N:5} D {D:3} {'causal' if causal else 'full  '} {name:16} {speed}", flush=True)
    write_results(out, environment, rows)


main()
