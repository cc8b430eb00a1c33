# logits_h200.py: how right are dV, dQ, dK and the rows of P when logits are large? Ours beside PyTorch's backends,
# on the same numbers, against fp64; writes h200-logits.json and logits-h200.md. Exits with 1 if ours misses its bar.
# cmake --build build --target flash-backward-precision && python3 tests/bench/logits_h200.py build/bin docs/results
import math
import os
import subprocess
import sys
import tempfile

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from results import gpu_environment, our_phase, write_results
from torch_side import BACKENDS, backend

TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
INPUTS = {"1e1": "10", "1e3": "1e3", "1e4": "1e4", "1e6": "1e6", "signs": "Q, K of +-1e4: 1e9"}
SHAPE = {"cuda": [1, 8, 1024, 64], "cpu": [1, 1, 96, 32]}  # [B, H, S, D]


def exact(q, k, v, do):
    """In fp64, head by head, from the definition: O, dQ, dK, dV, and of each gradient the norm of G, the same sums with
    every term positive (tests/gradients.hpp)."""
    scale = float(numpy.float32(q.shape[-1] ** -0.5))
    heads, squares = [], torch.zeros(3, dtype=torch.float64)
    for Q, K, V, dO in zip(*(x.double().flatten(0, 1) for x in (q, k, v, do))):
        P = torch.softmax(Q @ K.T * scale, -1)
        dP = dO @ V.T
        delta = (P * dP).sum(-1, keepdim=True)
        dS, size = P * (dP - delta), P * (dP.abs() + delta.abs())
        heads.append((P @ V, dS @ K * scale, dS.T @ Q * scale, P.T @ dO))
        for i, G in enumerate((size @ K.abs() * scale, size.T @ Q.abs() * scale, P.T @ dO.abs())):
            squares[i] += float(G.square().sum())
    return [torch.stack(x).view(q.shape) for x in zip(*heads)], squares.sqrt().tolist()


def from_torch(which, q, k, v, do):
    """O, the gradients for dO, and dV for a dO that shows the first D rows of P (backward_precision.cpp)."""
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    unit = torch.zeros_like(do)
    unit[..., range(do.shape[-1]), range(do.shape[-1])] = 1
    with sdpa_kernel(which):
        o = sdpa(*leaves)
        grads = torch.autograd.grad(o, leaves, do, retain_graph=True)
        return [o.detach(), *grads, torch.autograd.grad(o, leaves[2], unit)[0]]


def judge(results, want, G, dtype, max_logit):
    """Relative errors of O, dQ, dK and dV (none where the exact one is 0), how far the sum of a row of P is from 1 at
    worst, and what share of its bar the worst of them takes. Bars: dV 2 x O's error; dQ and dK 4 x, plus what O is
    allowed for such logits, 4 * 2^-24 * max|S|; the contract's 5e-6, or 2 rounding floors, and 4 * 2^-24 * |G| on top.
    Rows of P: 1e-6, and the rounding of dV, which shows them."""
    distance = [float((x.double() - w).norm()) for x, w in zip(results, want)]
    norm = [float(w.norm()) for w in want]
    error = [d / n if n else None for d, n in zip(distance, norm)]
    row = float((results[4].double().sum(-2) - 1).abs().max())
    large = 4 * error[0] + 4 * 2**-24 * max_logit
    shares = [row / (1e-6 + (0 if dtype == torch.float32 else torch.finfo(dtype).eps))]
    for d, w, n, g, times in zip(distance[1:], want[1:], norm[1:], G, (large, large, 2 * error[0])):
        base = 5e-6 * n if dtype == torch.float32 else 2 * float((w.to(dtype).double() - w).norm())
        shares.append(d / (times * n + base + 4 * 2**-24 * g))
    worst = max(shares, key=lambda x: float("inf") if x != x else x)  # NaN is the worst of all
    numbers = dict(zip(("o", "dq", "dk", "dv", "row_sum", "of_bar"), (*error, row, worst)))
    # JSON has no infinity and no NaN: words then.
    return {"within_bar": worst <= 1,
            **{key: x if x is None or math.isfinite(x) else str(x) for key, x in numbers.items()}}


def main(programs, out, device="cuda"):
    backends = {name: backend(name) for name in BACKENDS} if device == "cuda" else {"torch math": SDPBackend.MATH}
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        B, H, S, D = (str(x) for x in SHAPE[device])
        machine = "gpu" if device == "cuda" else "sim"
        subprocess.run([os.path.join(programs, "flash-backward-precision"), "--logits", directory, machine, S, D, B, H],
                       check=True, stdout=subprocess.DEVNULL)
        ours = our_phase(directory)
        for key, label in INPUTS.items():
            for type_name, dtype in TYPES.items():
                def load(x):
                    return torch.from_numpy(numpy.load(f"{directory}/{key}_{type_name}_{x}.npy")).to(device).to(dtype)

                q, k, v, do = (load(x) for x in ("q", "k", "v", "dout"))
                want, G = exact(q, k, v, do)
                max_logit = float((q.double() @ k.double().transpose(-1, -2)).abs().max()) * q.shape[-1] ** -0.5
                results = {ours: [load(x) for x in ("o", "dq", "dk", "dv", "p")]}
                for backend_name, which in backends.items():
                    try:
                        results[backend_name] = from_torch(which, q, k, v, do)
                    except RuntimeError as error:  # a backend that has no such type
                        print(f"# {backend_name}, {label}, {type_name}: {str(error).splitlines()[0]}", file=sys.stderr)
                for who, got in results.items():
                    rows.append({"logits": label, "type": type_name, "who": who, "max_logit": max_logit,
                                 **judge(got, want, G, dtype, max_logit)})
    environment = gpu_environment()
    write_results(os.path.join(out, "h200-logits.json"), environment, rows)
    with open(os.path.join(out, "logits-h200.md"), "w", encoding="utf-8") as file:
        file.write(page(ours, environment, SHAPE[device], rows))
    return 0 if all(r["within_bar"] for r in rows if r["who"] == ours) else 1


def page(ours, environment, shape, rows):
    text = f"""# Large logits: {ours} beside PyTorch's backends

Written by `tests/bench/logits_h200.py`: {environment["gpu"]}, torch {environment["torch"]}, commit
{environment["commit"]}, {environment["date"]}. [B, H, S, D] = {shape}, V and dO of N(0,1), Q and K of N(0,1) times
what makes logits that large. Errors are relative (Frobenius), against fp64. Row sum: how far the sum of a row of P is
from 1 at worst, seen through dV, which the type rounds. Where one key takes each row (1e4 and more) the exact dQ and dK
are 0 but for a few rows, and their relative errors say little. Of the bar: the worst share that dV (2 times O's error),
dQ and dK (4 times, and what O is allowed for such logits), each plus the contract's bar, and the row sums (1e-6, plus
the type's rounding) take of what they may: [backward.md](../backward.md).

| logits | type | gradients of | O | dV | dQ | dK | row sum | of the bar |
|---|---|---|---|---|---|---|---|---|
"""
    for r in rows:
        numbers = (r[x] for x in ("o", "dv", "dq", "dk", "row_sum", "of_bar"))
        cells = " | ".join("–" if x is None else x if isinstance(x, str) else f"{x:.1e}" for x in numbers)
        text += f"| {r['logits']} | {r['type']} | {r['who']} | {cells}{'' if r['within_bar'] else ' **over**'} |\n"
    return text


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: logits_h200.py FOLDER_OF_PROGRAMS FOLDER_OF_RESULTS [cpu]")
    sys.exit(main(*sys.argv[1:]))
