# model_h200.py: the package flashphases in a model, beside torch's scaled_dot_product_attention: training of a small
# language model (loss, tokens a second, memory, the share of attention), attention alone forward and backward, small
# problems under a CUDA graph and eager, and what a call costs the host.
# FLASHPHASES_LIBRARY=…/libflashphases.so python3 tests/bench/model_h200.py OUT.json [--sweeps train,small]
# --device cpu --steps 4 --width 64 --layers 2 --length 64: the same on a laptop, as a trial; it says nothing of speed.
import argparse
import contextlib
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "phases/library"), str(ROOT / "tests/bench")]

from results import commit_and_date, gpu_environment, write_results  # noqa: E402

VOCABULARY = 256  # bytes
OURS, TORCHS = "flashphases", "torch sdpa"


def text():
    """The project's own pages, as bytes: the same for everybody, and nothing to download."""
    files = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/book/*.md"), *ROOT.glob("phases/*/*.cpp"),
                    *ROOT.glob("phases/*/*.cuh"), *ROOT.glob("sim/*/*.cpp")])
    return b"".join(file.read_bytes() for file in files)


def model_of(torch, options, attend):
    """A decoder: pre-norm blocks, learned positions, tied embedding. `attend` is called as torch's function is."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.norms[0](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.mlp(self.norms[1](x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, options.width)
            self.places = nn.Embedding(options.length, options.width)
            self.blocks = nn.ModuleList([Block(options.width, options.heads) for _ in range(options.layers)])
            self.norm = nn.LayerNorm(options.width)
            for table in (self.embed, self.places):
                nn.init.normal_(table.weight, std=0.02)

        def forward(self, tokens):
            x = self.embed(tokens) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return self.norm(x) @ self.embed.weight.T
    torch.manual_seed(0)
    return Model().to(options.device)


def train(torch, options, name, attend):
    """A row: the loss of each step, tokens a second, peak memory. Batches, weights, optimiser: the same for all."""
    data = torch.frombuffer(bytearray(text()), dtype=torch.uint8)
    draw = torch.Generator().manual_seed(1)
    model = model_of(torch, options, attend)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    synchronise = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    losses, steps = [], []
    for _ in range(options.steps):
        starts = torch.randint(len(data) - options.length - 1, (options.batch,), generator=draw)
        tokens = torch.stack([data[s:s + options.length + 1] for s in starts]).long().to(options.device)
        synchronise()
        begin = time.perf_counter()
        with torch.autocast(options.device, torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        synchronise()
        steps.append(time.perf_counter() - begin)
        losses.append(loss.item())
    step = statistics.median(steps[len(steps) // 4:])
    return {"sweep": "model", "kernel": name, "parameters": sum(p.numel() for p in model.parameters()),
            "layers": options.layers, "H": options.heads, "N": options.length, "B": options.batch,
            "D": options.width // options.heads, "causal": True, "type": "bfloat16",
            "losses": [round(x, 5) for x in losses], "step_ms": step * 1e3,
            "tokens_per_second": options.batch * options.length / step,
            "peak_bytes": torch.cuda.max_memory_allocated() if options.device == "cuda" else None}


def inputs(torch, B, H, N, D, device):
    torch.manual_seed(0)
    return [torch.randn(B, N, H, D, device=device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
            for _ in range(4)]


def ways(torch):
    """Ours, and each of torch's backends, forward and backward."""
    from torch.nn.attention import sdpa_kernel
    from torch_side import backend

    import flashphases.torch as fp

    def by(attend, context):
        def run(q, k, v, dout):
            with context():
                o = attend(q, k, v, is_causal=True)
            return torch.autograd.grad(o, (q, k, v), dout)
        return run
    torchs = torch.nn.functional.scaled_dot_product_attention
    yield OURS, by(fp.scaled_dot_product_attention, contextlib.nullcontext)
    for name in ("torch flash", "torch cudnn"):
        yield name, by(torchs, lambda name=name: sdpa_kernel(backend(name)))


def attention(torch, options):
    """Forward and backward, causal, bf16; the share of a training step is layers · ms of its sizes / step_ms."""
    from torch_side import Turns

    turns, rows = Turns(), []
    sizes = [(16384 // N, 16, N, 128) for N in (1024, 2048, 4096, 8192, 16384)]
    sizes.append((options.batch, options.heads, options.length, options.width // options.heads))
    for B, H, N, D in sizes:
        given = inputs(torch, B, H, N, D, "cuda")
        runs = {name: (lambda run=run: run(*given)) for name, run in ways(torch)}
        for name, times in turns.times(runs, options.rounds).items():
            ms = statistics.median(times)
            rows.append({"sweep": "model attention", "kernel": name, "B": B, "H": H, "N": N, "D": D, "causal": True,
                         "type": "bfloat16", "median_ms": ms, "samples": len(times),
                         "tflops": 14 * B * H * N * (N + 1) // 2 * D / ms * 1e-9})
    return rows


def small(torch, options):
    """B 1, H 16, N 1024, D 64, forward and backward: under a CUDA graph, and eager, in microseconds of the clock."""
    given, runs = inputs(torch, 1, 16, 1024, 64, "cuda"), {}
    for name, run in ways(torch):
        runs[name, "eager_us"] = lambda run=run: run(*given)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(20):
                run(*given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            run(*given)
        runs[name, "graph_us"] = graph.replay
    samples = {what: [] for what in runs}
    for _ in range(options.rounds):  # in turn: the host's speed changes while this runs
        for what, run in runs.items():
            for _ in range(20):
                run()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(200):
                run()
            torch.cuda.synchronize()
            samples[what].append((time.perf_counter() - begin) / 200 * 1e6)
    return [{"sweep": "model small", "kernel": name, "B": 1, "H": 16, "N": 1024, "D": 64, "causal": True,
             "type": "bfloat16", **{what: statistics.median(samples[name, what]) for what in ("eager_us", "graph_us")}}
            for name in dict.fromkeys(name for name, _ in runs)]


def host(torch, options):
    """Microseconds of the host for one call without gradients, on a problem of one row: eager; the C call alone."""
    import ctypes

    import flashphases.torch as fp
    from flashphases import _abi

    x = torch.randn(1, 1, 1, 64, device=options.device, dtype=torch.bfloat16)
    o, lse = torch.empty_like(x), torch.empty(1, 1, 1, device=options.device)
    machine = _abi.CPU if options.device == "cpu" else _abi.GPU
    args = _abi.forward_args(x, x, x, o, lse, machine=machine, threads=1)
    wanted = ctypes.c_size_t()
    _abi.check(_abi.library().flashphases_workspace(args, wanted))
    workspace = torch.zeros(max(wanted.value, 1), dtype=torch.uint8, device=options.device)
    stream = torch.cuda.current_stream().cuda_stream if options.device == "cuda" else None
    named = _abi.forward_args(x, x, x, o, lse, machine=machine, threads=1,
                              phase=max(_abi.chosen_phase(args), 0))
    call = _abi.library().flashphases_forward
    runs = {OURS: lambda: fp.attention(x, x, x),
            TORCHS: lambda: torch.nn.functional.scaled_dot_product_attention(x, x, x),
            "C call, auto": lambda: call(args, workspace.data_ptr(), wanted.value, stream),
            "C call": lambda: call(named, workspace.data_ptr(), wanted.value, stream)}
    rows = []
    with torch.no_grad():
        for name, run in runs.items():
            best = float("inf")
            for _ in range(options.rounds):
                begin = time.perf_counter()
                for _ in range(500):
                    run()
                best = min(best, (time.perf_counter() - begin) / 500 * 1e6)
                if options.device == "cuda":
                    torch.cuda.synchronize()
            rows.append({"sweep": "model host", "kernel": name, "host_us": best})
    return rows


def main():
    parser = argparse.ArgumentParser(description="flashphases in a model, beside torch's attention")
    parser.add_argument("out", help="the result file")
    parser.add_argument("--sweeps", default="train,attention,small,host", help="default: all")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: train and host alone")
    for name, default, what in (("steps", 200, "of training"), ("width", 512, "of the model"), ("layers", 16, "of it"),
                                ("heads", 4, "of a layer"), ("length", 2048, "tokens of a sequence"),
                                ("batch", 8, "sequences of a step"), ("rounds", 20, "of timing")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} ({default})")
    options = parser.parse_args()
    import torch

    import flashphases.torch as fp

    sweeps = options.sweeps.split(",") if options.device == "cuda" else ["train", "host"]
    rows = []
    if "train" in sweeps:
        for name, attend in ((TORCHS, torch.nn.functional.scaled_dot_product_attention),
                             (OURS, fp.scaled_dot_product_attention),
                             (f"{TORCHS} again", torch.nn.functional.scaled_dot_product_attention)):
            rows.append(train(torch, options, name, attend))
            print(f"{name}: loss {rows[-1]['losses'][0]:.3f} to {rows[-1]['losses'][-1]:.3f}, "
                  f"{rows[-1]['tokens_per_second']:.0f} tokens/s", flush=True)
        theirs, ours, again = (row["losses"] for row in rows[:3])
        apart = max(abs(a - b) for a, b in zip(theirs, ours))
        noise = max(abs(a - b) for a, b in zip(theirs, again))
        print(f"the curves are {apart:.4f} apart at most, torch's own two {noise:.4f}")
        if not statistics.fmean(ours[-10:]) <= statistics.fmean(theirs[-10:]) + 0.05:
            sys.exit("the model learns less with flashphases: expected the loss of torch's attention, within 0.05")
    for name, sweep in (("attention", attention), ("small", small), ("host", host)):
        if name in sweeps:
            rows += sweep(torch, options)
            for row in rows:
                if row["sweep"] == f"model {name}":
                    print(row, flush=True)
    environment = gpu_environment() if options.device == "cuda" else {"torch": torch.__version__, **commit_and_date()}
    write_results(options.out, environment, rows)


if __name__ == "__main__":
    main()
