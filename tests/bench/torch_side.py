# torch_side.py: what benchmarks in Python share on PyTorch's side: its backends, gradients in fp64, and the time of
# many kernels in turn: each turn in a new order, the L2 cache flushed before each run, the GPU hot.
# from torch_side import BACKENDS, Turns, exact_gradients, relative
import math
import random

# Names that tables know, of torch.nn.attention.SDPBackend.
BACKENDS = {"torch flash": "FLASH_ATTENTION", "torch efficient": "EFFICIENT_ATTENTION",
            "torch cudnn": "CUDNN_ATTENTION"}


def backend(name):
    from torch.nn.attention import SDPBackend

    return getattr(SDPBackend, BACKENDS[name])


def exact_gradients(q, k, v, dout, causal=False):
    """O, dQ, dK and dV in fp64, head by head, from the definition: P and dP as whole matrices, delta from them."""
    import torch

    # What kernels compute with: the scale rounded to fp32.
    scale = torch.tensor(1 / math.sqrt(q.shape[3]), dtype=torch.float32).double().item()
    exact = [torch.empty(x.shape, dtype=torch.float64, device=x.device) for x in (q, q, k, v)]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            Q, K, V, dO = (x[b, h].double() for x in (q, k, v, dout))
            S = Q @ K.T * scale
            if causal:
                S.masked_fill_(torch.ones_like(S, dtype=torch.bool).triu_(1), -math.inf)
            P = torch.softmax(S, 1)
            del S
            exact[0][b, h], exact[3][b, h] = P @ V, P.T @ dO
            dS = dO @ V.T
            dS -= (P * dS).sum(1, keepdim=True)
            dS *= P
            exact[1][b, h], exact[2][b, h] = dS @ K * scale, dS.T @ Q * scale
    return exact


def relative(got, want):
    return float((got.double() - want).norm() / want.norm())


class Turns:
    """times = Turns().times({name: function}, rounds): of each the ms of every round, in the rounds' order."""

    def __init__(self):
        import torch

        self.torch = torch
        self.flush = torch.empty(64 << 20, device="cuda")
        self.square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.cycles = 1000000  # half a millisecond

    def once(self, run):
        """ms of what `run` enqueues, all of which waits in the queue when the GPU begins with it."""
        torch = self.torch
        while True:
            self.flush.zero_()
            torch.cuda._sleep(self.cycles)
            self.begin.record()
            run()
            in_time = not self.begin.query()
            self.end.record()
            torch.cuda.synchronize()
            if in_time:
                return self.begin.elapsed_time(self.end)
            if self.cycles > 1 << 26:
                raise RuntimeError("a run waits for the GPU itself: what it takes there cannot be told")
            self.cycles *= 2

    def times(self, runs, rounds):
        for run in runs.values():  # libraries look for their kernels when they first run
            run()
        for _ in range(10):  # heats the GPU
            self.square @ self.square
        times = {name: [] for name in runs}
        for turn in range(rounds + 1):  # the first is not counted
            for name in random.sample(list(runs), len(runs)):
                ms = self.once(runs[name])
                if turn:
                    times[name].append(ms)
        return times
