# training_beside.py: a forward pass and the backward pass behind it, as training runs them: a phase's beside cuDNN's
# and FlashAttention-2's (PyTorch), in one process, in turn, on the same tensors: time and memory. Each is compared with
# fp64 before it is timed. Says, too, what it costs to keep m, l and O's low bits.
# python3 tests/bench/training_beside.py --library build/default/lib/libflash-passes.so --out h200-training-beside.json
import argparse
import contextlib
import statistics
import sys

from passes import Passes, Training, name_of
from results import gpu_environment, write_results
from torch_side import Turns, backend, exact_gradients, relative

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
HALF_LENGTHS = (2048, 8192)  # in fp16
TOKENS, COLUMNS = 16384, 2048  # B * N, H * D
FLASH, DETERMINISTIC_FLASH, CUDNN = "torch flash", "torch flash deterministic", "torch cudnn"


def cases(options):
    """(type, D, causal, N)."""
    half_lengths = [N for N in options.lengths if N in HALF_LENGTHS]
    for dtype, lengths in (("bfloat16", options.lengths), ("float16", half_lengths)):
        for D in options.head_dims:
            for causal in (False, True):
                for N in lengths:
                    yield dtype, D, causal, N


@contextlib.contextmanager
def deterministic(torch, wanted):
    """FlashAttention-2 of PyTorch asks this switch; fresh memory stays as it comes."""
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(wanted)
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = filled


class Library:
    """PyTorch's attention by one of its backends: forward, backward, both."""

    def __init__(self, torch, name, q, k, v, dout, causal):
        self.torch, self.name, self.causal = torch, name, causal
        self.inputs, self.dout = [x.detach().requires_grad_() for x in (q, k, v)], dout

    def forward(self):
        from torch.nn.attention import sdpa_kernel

        with sdpa_kernel(backend(self.name.removesuffix(" deterministic"))):
            return self.torch.nn.functional.scaled_dot_product_attention(*self.inputs, is_causal=self.causal)

    def __call__(self):
        """O, dQ, dK and dV."""
        with deterministic(self.torch, self.name == DETERMINISTIC_FLASH):
            o = self.forward()
            return o.detach(), *self.torch.autograd.grad(o, self.inputs, self.dout)


def check(name, got, exact, bars):
    """Errors of one head's O, dQ, dK and dV, each in rounding floors; all within their bars, or the end."""
    floors = [relative(want.to(x.dtype), want) for x, want in zip(got, exact)]
    errors = [relative(x, want) / floor for x, want, floor in zip(got, exact, floors)]
    if not all(error <= bar for error, bar in zip(errors, bars)):
        sys.exit(f"wrong: {name}: O, dQ, dK, dV are {errors} rounding floors from fp64; expected at most {bars}")
    return errors


def peak_bytes(torch, run):
    """Of device memory that a forward and a backward pass take beside Q, K, V and dO, results included."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def measure(passes, phase, case, turns, rounds):
    """A row for each that takes part."""
    import torch

    dtype, D, causal, N = case
    B, H = TOKENS // N, COLUMNS // D
    torch.manual_seed(0)
    q, k, v, dout = given = [torch.randn(B, H, N, D, device="cuda", dtype=getattr(torch, dtype)) for _ in range(4)]
    name = name_of(phase)
    ways = {name: {}, f"{name} deterministic": {"atomic": False}, f"{name} from LSE": {"kept": False}}
    libraries = {each: Library(torch, each, *given, causal) for each in (FLASH, DETERMINISTIC_FLASH, CUDNN)}

    # Memory first: each allocates all that it needs.
    memory = {each: peak_bytes(torch, lambda: Training(passes, phase, *given, causal, **how)())
              for each, how in ways.items()}
    memory |= {each: peak_bytes(torch, library) for each, library in libraries.items()}

    # Right, before anything is timed: the last head against fp64.
    ours = {each: Training(passes, phase, *given, causal, **how) for each, how in ways.items()}
    exact = exact_gradients(*(x[-1:, -1:] for x in given), causal)
    errors = {}
    for each, training in ours.items():
        training()
        got = [x[-1:, -1:] for x in (training.o, *training.gradients())]
        errors[each] = check(f"{each} on {case}", got, exact, (1.5, 2, 2, 2))
    for each, library in libraries.items():
        errors[each] = check(f"{each} on {case}", [x[-1:, -1:] for x in library()], exact, (4, 4, 4, 4))
    del exact

    runs = {**ours, **libraries}
    forward = {each: training.forward for each, training in ours.items() if "deterministic" not in each}
    backward = {each: training.backward for each, training in ours.items()}
    times = turns.times({("both", each): run for each, run in runs.items()} |
                        {("forward", each): run for each, run in forward.items()} |
                        {("backward", each): run for each, run in backward.items()}, rounds)

    def over(what, one, other):
        """The median of the rounds' ratios of times: how many times as fast `one` is."""
        return statistics.median(b / a for a, b in zip(times[what, one], times[what, other]))

    pairs = B * H * (N * (N + 1) // 2 if causal else N * N)
    rows = []
    for (what, each), samples in times.items():
        ms = statistics.median(samples)
        work = {"forward": 4, "backward": 10, "both": 14}[what] * pairs * D
        row = {"sweep": f"training {what}" if what != "both" else "training", "B": B, "H": H, "N": N, "D": D,
               "causal": causal, "type": dtype, "kernel": each, "samples": len(samples), "median_ms": ms,
               "tflops": work / ms * 1e-9}
        if what == "both":
            row |= {"peak_bytes": memory[each], "floors": errors[each]}
            row["over"] = {other: over("both", each, other) for other in libraries if other != each}
        if what == "both" and each in ours:
            row["workspace_bytes"] = ours[each].forward.workspace_bytes + ours[each].backward.workspace_bytes
        rows.append(row)
    # What is kept, as parts of the time of both passes without it: in the forward pass, and in all.
    plain = f"{name} from LSE"
    rows[0]["price"] = {
        "forward": statistics.median((kept - none) / both for kept, none, both in zip(
            times["forward", name], times["forward", plain], times["both", plain])),
        "both": statistics.median(kept / both - 1 for kept, both in zip(times["both", name], times["both", plain]))}
    print(f"{dtype} D {D:3} {'causal' if causal else 'full  '} N {N:5}  " + "  ".join(
        f"{row['kernel']} {row['tflops']:.0f} ({row['peak_bytes'] / 2**20:.0f} MiB)"
        for row in rows if row["sweep"] == "training") +
        f"  price of what is kept {rows[0]['price']['forward']:.3f} {rows[0]['price']['both']:.3f}", flush=True)
    return rows


def means(rows, name):
    """Geometric means over N, for the log."""
    both = [row for row in rows if row["sweep"] == "training"]
    for kernel in (name, f"{name} deterministic"):
        for other in (FLASH, DETERMINISTIC_FLASH, CUDNN):
            for D, causal, dtype in sorted({(row["D"], row["causal"], row["type"]) for row in both}):
                ratios = [row["over"][other] for row in both
                          if (row["kernel"], row["D"], row["causal"], row["type"]) == (kernel, D, causal, dtype)]
                print(f"{kernel} over {other}: D {D} {'causal' if causal else 'full'} {dtype}: "
                      f"{statistics.geometric_mean(ratios):.2f}, lowest {min(ratios):.2f}")


def main(words):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="libflash-passes.so")
    parser.add_argument("--out", help="a file for the figures, JSON")
    parser.add_argument("--phase", type=int, default=24)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--head-dims", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(words)
    passes, turns, rows = Passes(options.library), Turns(), []
    for case in cases(options):
        rows += measure(passes, options.phase, case, turns, options.rounds)
    means(rows, name_of(options.phase))
    if options.out:
        write_results(options.out, gpu_environment(), rows)


if __name__ == "__main__":
    main(sys.argv[1:])
