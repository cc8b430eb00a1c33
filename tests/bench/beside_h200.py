# beside_h200.py: our phases, through libflashphases, and PyTorch's attention libraries in one process, on the same
# tensors, in turn; verified before they are timed, with clock, power and a large matrix product (cuBLAS) beside them.
# python3 tests/bench/beside_h200.py OUT.json --library PATH/libflashphases.so     (--help says more; h200.sh runs it)
import argparse
import collections
import contextlib
import ctypes
import functools
import math
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

from results import gpu_environment, write_results

Case = collections.namedtuple("Case", "sweep B H N D causal type")
PHASES_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "phases"
OURS = ("beside", "few", "hot", "summary")  # sweeps in which our phases take part
BACKWARD = "summary-backward"  # of PyTorch's libraries; flash-backward-bench has our phases'
SWEEPS = (*OURS, BACKWARD, "kernels", "naive-vs-flash", "steps")
LIBRARIES = {"torch flash": "FLASH_ATTENTION", "torch efficient": "EFFICIENT_ATTENTION",
             "torch cudnn": "CUDNN_ATTENTION", "torch math": "MATH"}
HOT_S = 0.4  # for so long a kernel runs back to back; clock and power are those of the second half
ROUNDS, FEW_ROUNDS = 9, 3  # kernels that take longer than SLOW take part in the first rounds alone
SLOW_MS, ROUND_MS = 30, 4  # per kernel and round: samples for so long, 1 to 10 of them
MATRIX = 8192  # of cuBLAS
ROWS = 128  # that are compared with fp64


# ---- What is measured; no GPU, no PyTorch ---------------------------------------------------------------------------


def cases(sweep):
    """beside, hot: 16384 tokens, heads of 2048 columns together. few: so few Q tiles that some of the GPU has no work;
    by these figures, too, a phase is chosen. summary: every phase at the largest shape of the kernels' sweep. The
    others: as cases() in cases.hpp."""
    both = (False, True)
    if sweep in ("summary", BACKWARD):
        return [Case(sweep, 4, 48, 8192, 64, c, "float16") for c in both]
    if sweep == "few":
        return [Case(sweep, 1, H, N, D, c, "bfloat16") for D in (64, 128, 256) for c in both for H in (1, 4, 8, 16)
                for N in (512, 1024, 2048, 4096)]
    if sweep == "hot":
        shapes = [(D, c, N) for D in (64, 128, 256) for c in both for N in (512, 2048, 8192)]
        return [Case(sweep, 16384 // N, 2048 // D, N, D, c, "bfloat16") for D, c, N in shapes]
    if sweep == "beside":
        shapes = [("bfloat16", D, c, 2**i) for D in (64, 128, 256) for c in both for i in range(9, 15)]
        shapes += [("float16", D, c, N) for D in (64, 128) for c in both for N in (512, 2048, 8192)]
        return [Case(sweep, 16384 // N, 2048 // D, N, D, c, type) for type, D, c, N in shapes]
    if sweep == "kernels":
        shapes = [(4, 48, 2**i, D, c) for D in (64, 16) for c in both for i in range(9, 14)]
        shapes += [(8, 32, 4096, 128, c) for c in both]
    elif sweep == "naive-vs-flash":
        shapes = [(4, 32, 2**i, 64, False) for i in range(9, 15)]
    else:
        shapes = [(4, 12, N, 64, False) for N in range(256, 4097, 128)]
    return [Case(sweep, *shape, "float16") for shape in shapes]


def participants(can):
    """{number: name}: the phases that use tensor cores, which no float32 goes through, and the first of the others;
    can(number, type, D): does the library run this phase, with LSE and the causal mask?"""
    able = {number: name for number, name in phase_names().items() if can(number, "float16", 64)}
    others = [number for number in able if can(number, "float32", 64)]
    return {number: name for number, name in able.items() if number not in others[1:]}


def contenders(case, phases, can):
    """Names. The phase without tensor cores would take half a minute for all sizes. hot: the last phase and cuDNN; few:
    the phases with tensor cores and cuDNN; summary: all phases and the two libraries that phases are compared with."""
    if case.sweep in ("summary", BACKWARD):
        ours = [name for number, name in phases.items() if case.sweep == "summary" and can(number, case.type, case.D)]
        return [*ours, "torch flash", "torch cudnn"]
    if case.sweep in ("hot", "few"):
        able = [name for number, name in phases.items()
                if can(number, case.type, case.D) and not can(number, "float32", 64)]
        return [*(able[-1:] if case.sweep == "hot" else able), "torch cudnn"]
    names = [name for number, name in phases.items()
             if case.sweep == "beside" and can(number, case.type, case.D)
             and (not can(number, "float32", 64) or (case.N <= 4096 and case.D <= 128))]
    return names + [name for name in LIBRARIES if name != "torch math" or case.sweep == "naive-vs-flash"]


def flops(case):
    """4·D for every pair (query, key) that meets; for a backward pass 2.5 times as much, by convention."""
    pairs = case.B * case.H * (case.N * (case.N + 1) // 2 if case.causal else case.N**2)
    return (10 if case.sweep == BACKWARD else 4) * case.D * pairs


def phase_names():
    """Of the phases with a forward pass of their own for plain attention: a phase that adds a demand to those of the
    one before (from 25 on) runs that one's kernels here."""
    texts = {path: (path / "phase.hpp").read_text(encoding="utf-8")
             for path in sorted(PHASES_FOLDER.glob("[0-9][0-9]-*"))}
    return {int(path.name[:2]): path.name for path, text in texts.items()
            if "Pass forward_pass" in text and "meets.add" not in text}


def quantile(samples, q):
    """Between neighbouring samples, as in gpu/timing.hpp."""
    ordered, at = sorted(samples), q * (len(samples) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def summary(samples):
    return {"samples": len(samples), "median_ms": quantile(samples, 0.5), "p10_ms": quantile(samples, 0.1),
            "p90_ms": quantile(samples, 0.9)}


def turns(first_ms):
    """{name: ms of a first run} -> who is timed when: a list of names for each round. Each round begins with the next
    kernel, so that none is always the first, whose chip is coolest, or the last."""
    names = list(first_ms)
    often = {name: max(1, min(10, int(ROUND_MS / ms))) for name, ms in first_ms.items()}
    return [[name for name in names[r % len(names):] + names[:r % len(names)]
             if first_ms[name] <= SLOW_MS or r < FEW_ROUNDS for _ in range(often[name])]
            for r in range(ROUNDS)]


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        print(f"{self.prog}: {message}; {self.prog} --help says more", file=sys.stderr)
        raise SystemExit(2)


def arguments(words):
    parser = Arguments(prog="beside_h200.py", description="Our phases and PyTorch's attention libraries, side by side.")
    parser.add_argument("out", help="the results: a JSON file in a folder that exists")
    parser.add_argument("--library", help=f"libflashphases.so, built with CUDA; the sweeps {', '.join(OURS)} need it")
    parser.add_argument("--sweeps", default="beside", help=f"some of {','.join(SWEEPS)}; default: beside")
    parser.add_argument("--list", action="store_true", help="say what would be timed; needs no GPU, writes nothing")
    options = parser.parse_args(words)
    options.sweeps = options.sweeps.split(",")
    for sweep in options.sweeps:
        if sweep not in SWEEPS:
            parser.error(f"sweep '{sweep}' is unknown; expected some of {','.join(SWEEPS)}")
    folder = os.path.dirname(options.out) or "."
    if not os.path.isdir(folder):
        parser.error(f"out: there is no folder '{folder}'; make it")
    if ours := [sweep for sweep in options.sweeps if sweep in OURS]:
        if options.library is None:
            parser.error(f"--library is missing; the sweep {ours[0]} needs libflashphases.so")
        if not os.path.isfile(options.library):
            parser.error(f"--library: there is no file '{options.library}'; build the target flash_library with CUDA")
    return parser, options


# ---- Our kernels: phases/library/flashphases ------------------------------------------------------------------------


class Library:
    def __init__(self, path):
        os.environ["FLASHPHASES_LIBRARY"] = os.path.abspath(path)
        sys.path.insert(0, str(PHASES_FOLDER / "library"))
        import flashphases

        self.flashphases = flashphases

    @functools.lru_cache(maxsize=None)
    def can(self, number, type, D):
        """Does it run this phase, with LSE and the causal mask? Asked with B = 0, which needs no memory and no GPU."""
        ours = self.flashphases
        rows = ours.Tensor(None, D, D, D)
        args = ours.ForwardArgs(struct_size=ctypes.sizeof(ours.ForwardArgs), phase=number, H=1, Sq=1, Sk=1, D=D, q=rows,
                                k=rows, v=rows, o=rows, lse=4, type=ours.TYPES[type],
                                mask=ours.MASKS["top-left"])
        return ours.library.flashphases_chosen_phase(args, ctypes.c_int32()) in (0, ours.NO_GPU)

    def forward(self, case, phase, q, k, v, o, lse, stream):
        """A call that enqueues the phase's forward pass on the stream."""
        import torch

        args = self.flashphases.forward_args(q, k, v, o, lse, "top-left" if case.causal else None, phase=phase)
        library, check = self.flashphases.library, self.flashphases.check
        wanted = ctypes.c_size_t()
        check(library.flashphases_workspace(args, wanted))
        workspace = torch.zeros(wanted.value, dtype=torch.uint8, device=q.device)
        return lambda: check(library.flashphases_forward(args, workspace.data_ptr(), wanted.value, stream))


# ---- The GPU --------------------------------------------------------------------------------------------------------


def read_by_nvml():
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    return lambda: (pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
                    pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000)


def read_by_smi():
    command = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "--id=0"]
    return lambda: tuple(float(x) for x in subprocess.check_output(command, text=True).split(","))


class Watch:
    """Reads what the management library says of the SM clock [MHz] and the power [W] while the block runs."""

    def __init__(self):
        try:
            self.read = read_by_nvml()
        except Exception:  # not installed, or no library beside it
            self.read = read_by_smi()

    def __enter__(self):
        self.seen, self.runs = [], True
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while self.runs:
            self.seen.append(self.read())
            time.sleep(0.02)

    def __exit__(self, *_):
        self.runs = False
        self.thread.join()


class Timer:
    def __init__(self, torch):
        self.torch, self.watch = torch, Watch()
        # More than the L2 cache holds; it takes the GPU longer to write this than the host to launch what is timed.
        self.spoiler = torch.empty(256 * 2**20, dtype=torch.uint8, device="cuda")
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def back_to_back(self, call, count):
        """ms of a call, the mean of so many."""
        self.begin.record()
        for _ in range(count):
            call()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / count

    def cold(self, call):
        """ms of one call that finds nothing in the L2 cache."""
        self.spoiler.zero_()
        return self.back_to_back(call, 1)

    def hot(self, call):
        """ms of a call, MHz and W, back to back until the chip is as hot as the kernel makes it."""
        count = max(10, int(HOT_S * 1000 / self.back_to_back(call, 10)))
        with self.watch as watch:
            ms = self.back_to_back(call, count)
        seen = watch.seen[len(watch.seen) // 2:]
        return ms, *(quantile([x[i] for x in seen], 0.5) for i in (0, 1))


class Bench(Timer):
    def __init__(self, torch, library):
        super().__init__(torch)
        self.library = library
        self.matrix = torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16)
        self.product()
        self.clock()

    def product(self):
        return self.matrix @ self.matrix

    def clock(self):
        """MHz: SM cycles that a kernel idles for, over time."""
        cycles = 1_000_000
        self.begin.record()
        self.torch.cuda._sleep(cycles)
        self.end.record()
        self.end.synchronize()
        return cycles / self.begin.elapsed_time(self.end) / 1000

    def once(self, work):
        context, call = work
        with context():
            return self.cold(call)

    # What is run: {name: (context, call)}; each call returns O, or leaves it where ours write it.

    def works(self, case, names, phases, q, k, v, o, lse):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        numbers = {name: number for number, name in phases.items()}
        stream = self.torch.cuda.current_stream().cuda_stream
        works = {}
        for name in names:
            if name in LIBRARIES:
                backend = getattr(SDPBackend, LIBRARIES[name])
                works[name] = (lambda backend=backend: sdpa_kernel(backend),
                               lambda: sdpa(q, k, v, is_causal=case.causal))
            else:
                call = self.library.forward(case, numbers[name], q, k, v, o, lse, stream)
                works[name] = (contextlib.nullcontext, call)
        return works

    # Right before fast.

    def exact_rows(self, case, q, k, v):
        """ROWS rows of O and LSE in fp64, first and last row of heads among them: their indices, O, LSE."""
        torch = self.torch
        generator = torch.Generator().manual_seed(2026)
        index = [torch.randint(n, (ROWS,), generator=generator) for n in (case.B, case.H, case.N)]
        index[2][0], index[2][1] = 0, case.N - 1
        index = tuple(index)
        o, lse = [], []
        for b, h, i in zip(*(x.tolist() for x in index)):
            keys = i + 1 if case.causal else case.N
            s = k[b, h, :keys].double() @ q[b, h, i].double() / math.sqrt(case.D)
            o.append(torch.softmax(s, 0) @ v[b, h, :keys].double())
            lse.append(torch.logsumexp(s, 0))
        return index, torch.stack(o), torch.stack(lse)

    def verdict(self, name, o, lse, exact, whole):
        """The relative error of O's sampled rows, that of the exact rows rounded to O's type, and what is wrong with
        them ("" if nothing is); each row counts the same, though with a mask the first ones are the largest. `whole`: O
        and LSE of torch flash, which must agree everywhere."""
        torch = self.torch
        index, want, want_lse = exact

        def relative(rows):
            return float(((rows.double() - want).norm(dim=1) / want.norm(dim=1)).square().mean().sqrt())

        error, floor = relative(o[index]), relative(want.to(o.dtype))
        bar = 1.5 * floor + 2**-24
        if name == "torch math":  # rounds S and P to the type of Q
            return error, floor, "" if error <= 10 * floor else f"error {error:.2e}, floor {floor:.2e}"
        # Of two results that are rounded, each within the bar; a rounding costs 1/sqrt(12) of the last bit's worth.
        last_bit = torch.finfo(o.dtype).eps * torch.exp2(torch.frexp(whole[0].float())[1] - 1.0)
        apart = float((o.float() - whole[0].float()).norm() / (last_bit.norm() / math.sqrt(12)))
        if not bool(torch.isfinite(o).all()):
            return error, floor, "O has elements that are no finite numbers"
        if not error <= bar:
            return error, floor, f"error {error:.2e} of O, floor {floor:.2e}"
        if not apart <= 2 * 1.5:
            return error, floor, f"O is {apart:.2f} roundings from torch flash's"
        if lse is not None:
            def off(a, b):
                return float(((a.double() - b.double()).abs() / b.double().abs().clamp(min=1)).max())
            # Of torch flash's LSE nothing is promised: the wider bar is for rows that no sample meets.
            if not (off(lse[index], want_lse) <= 1e-5 and off(lse, whole[1]) <= 1e-4):
                return error, floor, f"LSE is off by {off(lse[index], want_lse):.1e}, {off(lse, whole[1]):.1e}"
        return error, floor, ""

    def measure(self, case, names, phases):
        """Rows for the results, and how many kernels were wrong."""
        torch = self.torch
        dtype = getattr(torch, case.type)
        torch.manual_seed(2026)
        q, k, v = (torch.randn(case.B, case.H, case.N, case.D, device="cuda", dtype=dtype) for _ in range(3))
        o, lse = torch.empty_like(q), torch.empty(case.B, case.H, case.N, device="cuda")
        if case.sweep == BACKWARD:
            return self.measure_backward(case, names, q, k, v), 0
        exact = self.exact_rows(case, q, k, v)
        whole = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, case.causal)[:2]
        works = self.works(case, names, phases, q, k, v, o, lse)
        rows, bits, wrong = {}, {}, 0
        for name in names:
            row = case._asdict() | {"kernel": name, "flops": flops(case)}
            ours = name not in LIBRARIES
            try:
                o.fill_(math.nan), lse.fill_(math.nan)
                with works[name][0]():
                    result = works[name][1]()
                error, floor, fault = self.verdict(name, o if ours else result, lse if ours else None, exact, whole)
            except torch.cuda.OutOfMemoryError as e:
                wanted = re.search(r"Tried to allocate ([0-9.]+) ([KMG]iB)", str(e))
                unit = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
                rows[name] = row | {"out_of_memory_bytes": int(float(wanted[1]) * unit[wanted[2]]) if wanted else 0}
                del works[name]
                continue
            except RuntimeError as e:
                print(f"{name} on {tuple(case)}: refused: {str(e).splitlines()[0]}")
                wrong += ours
                del works[name]
                continue
            if fault:
                print(f"{name} on {tuple(case)}: {fault}; not timed")
                wrong += ours
                del works[name]
                continue
            rows[name] = row | {"error": error, "rounding_floor": floor}
            if ours:
                bits[name] = o.clone()
            result = None
        with torch.no_grad():
            (self.time_hot if case.sweep == "hot" else self.time)(works, rows)
        for name, first in bits.items():
            o.fill_(math.nan)
            works[name][1]()
            if not torch.equal(o, first):
                print(f"{name} on {tuple(case)}: gave other bits after it was timed than before")
                wrong += 1
        return list(rows.values()), wrong

    def measure_backward(self, case, names, q, k, v):
        """Rows for the results: of libraries, which are compared with fp64 on one head."""
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        inputs, dout = [x.requires_grad_() for x in (q, k, v)], torch.randn_like(q)
        ones = [x[:1, :1].detach().double().requires_grad_() for x in (q, k, v)]
        with sdpa_kernel(SDPBackend.MATH):
            exact = torch.autograd.grad(sdpa(*ones, is_causal=case.causal), ones, dout[:1, :1].double())
        works, rows = {}, {}
        for name in names:
            with sdpa_kernel(getattr(SDPBackend, LIBRARIES[name])):
                o = sdpa(*inputs, is_causal=case.causal)
            call = functools.partial(torch.autograd.grad, o, inputs, dout, retain_graph=True)
            errors = [float((got[:1, :1].double() - want).norm() / want.norm()) for got, want in zip(call(), exact)]
            floors = [float((want.to(q.dtype).double() - want).norm() / want.norm()) for want in exact]
            if not all(error <= 10 * floor for error, floor in zip(errors, floors)):
                raise RuntimeError(f"{name} on {tuple(case)}: errors {errors}, floors {floors}")
            works[name] = (contextlib.nullcontext, call)
            rows[name] = case._asdict() | {"kernel": name, "flops": flops(case), "error": max(errors),
                                           "rounding_floor": floors[errors.index(max(errors))]}
        self.time(works, rows)
        return list(rows.values())

    def time_hot(self, works, rows):
        """Back to back, and a large matrix product likewise."""
        works = works | {"cublas": (contextlib.nullcontext, self.product)}
        rows["cublas"] = next(iter(rows.values())) | {"kernel": "cublas 8192", "flops": 2 * MATRIX**3}
        for name, (context, call) in works.items():
            with context():
                ms, mhz, watts = self.hot(call)
            rows[name].update(median_ms=ms, tflops=rows[name]["flops"] / ms * 1e-9, nvml_mhz=mhz, power_w=watts)

    def time(self, works, rows):
        works = works | {"cublas": (contextlib.nullcontext, self.product)}
        began = time.monotonic()
        while time.monotonic() - began < 0.05:  # warm: the clock comes to where it stays
            self.once(works["cublas"])
        first_ms = {name: min(self.once(work) for _ in range(2)) for name, work in works.items()}
        samples, clocks = {name: [] for name in works}, []
        with self.watch as watch:
            for one_round in turns(first_ms):
                for name in one_round:
                    samples[name].append(self.once(works[name]))
                clocks.append(self.clock())
        mhz, watts = ([x[i] for x in watch.seen] for i in (0, 1))
        beside = {"sm_mhz": quantile(clocks, 0.5), "nvml_mhz": quantile(mhz, 0.5), "power_w": quantile(watts, 0.5),
                  "cublas_tflops": 2 * MATRIX**3 / quantile(samples.pop("cublas"), 0.5) * 1e-9}
        for name, times in samples.items():
            row = rows[name]
            row.update(summary(times))
            row["tflops"] = row["flops"] / row["median_ms"] * 1e-9
            row.update(beside)


def main(words):
    parser, options = arguments(words)
    library = Library(options.library) if options.library else None
    can = library.can if library else lambda number, type, D: False
    phases = participants(can)
    plan = [(case, contenders(case, phases, can)) for sweep in options.sweeps for case in cases(sweep)]
    if options.list:
        for case, names in plan:
            print(*case, f"{flops(case) * 1e-12:.3f} TFLOP:", ", ".join(names))
        print(f"{len(plan)} shapes, {sum(len(names) for _, names in plan)} measurements")
        return 0
    try:
        import torch
    except ImportError:
        parser.error("PyTorch is not installed; install torch 2.5 or newer")
    if not torch.cuda.is_available():
        parser.error("no CUDA device was found; --list says what would be timed")
    bench = Bench(torch, library)
    began, rows, wrong = time.monotonic(), [], 0
    for case, names in plan:
        more, faults = bench.measure(case, names, phases)
        rows, wrong = rows + more, wrong + faults
        speeds = "  ".join(f"{row['kernel']} {row['tflops']:.0f}" if "tflops" in row else f"{row['kernel']} no memory"
                           for row in more)
        print(f"{case.sweep} {case.type} B{case.B} H{case.H} D{case.D} N {case.N} "
              f"{'causal' if case.causal else 'full'}, TFLOP/s: {speeds}", flush=True)
    # What is wrong is kept for whoever looks for the cause, but not under the name that was asked for.
    write_results(options.out + (".refused" if wrong else ""), gpu_environment(), rows)
    print(f"{len(rows)} measurements in {time.monotonic() - began:.0f} s; {wrong} wrong or refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
