# precision_h200.py: how precise are dQ, dK and dV? Phase 09's, from the files of flash-backward-precision, beside those of
# PyTorch's flash, efficient and cuDNN backends on the same inputs; against fp64 on the GPU. Prints a table, writes JSON.
# build/bin/flash-backward-precision /tmp/gradients && python3 tests/bench/precision_h200.py /tmp/gradients precision.json
import json
import math
import os
import sys

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

INPUTS = {"normal": "N(0,1)", "shifted": "N(1,1)", "uniform": "uniform[0,1)", "outliers": "outliers", "times4": "Q, K, V x 4"}
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch cudnn": SDPBackend.CUDNN_ATTENTION,
}
# The project's bars, in rounding floors.
BARS = {"normal": 2, "shifted": 10, "uniform": 10, "outliers": 4, "times4": 4}


def exact(q, k, v, do):
    """Gradients in fp64, head by head, from the definition: P and dP as whole matrices, delta from them."""
    grads = [torch.empty(x.shape, dtype=torch.float64, device=x.device) for x in (q, k, v)]
    # What kernels compute with: the scale rounded to fp32.
    scale = float(numpy.float32(1 / math.sqrt(q.shape[-1])))
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            Q, K, V, dO = (x[b, h].double() for x in (q, k, v, do))
            P = torch.softmax(Q @ K.T * scale, -1)
            dP = dO @ V.T
            dS = P * (dP - (P * dP).sum(-1, keepdim=True))
            grads[0][b, h], grads[1][b, h], grads[2][b, h] = dS @ K * scale, dS.T @ Q * scale, P.T @ dO
    return grads


def relative(got, want):
    return float((got.double() - want).norm() / want.norm())


def from_torch(backend, q, k, v, do):
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(backend):
        return torch.autograd.grad(sdpa(*leaves), leaves, do)


def main(directory, out=None, device="cuda"):
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    rows = []
    for key, label in INPUTS.items():
        for type_name, dtype in TYPES.items():
            def load(x):
                path = os.path.join(directory, f"{key}_{type_name}_{x}.npy")
                return torch.from_numpy(numpy.load(path)).to(device).to(dtype)

            q, k, v, do = (load(x) for x in ("q", "k", "v", "dout"))
            want = exact(q, k, v, do)
            floor = [relative(x.to(dtype), x) for x in want]
            results = {"ours (phase 09)": [load(x) for x in ("dq", "dk", "dv")]}
            for backend_name, backend in BACKENDS.items():
                try:
                    results[backend_name] = from_torch(backend, q, k, v, do)
                except RuntimeError as error:
                    print(f"# {backend_name}, {label}, {type_name}: {str(error).splitlines()[0]}", file=sys.stderr)
            for who, got in results.items():
                errors = [relative(x, w) for x, w in zip(got, want)]
                rows.append({"input": label, "type": type_name, "who": who, "shape": list(q.shape), "floor": floor,
                             "error": errors, "floors": [e / f for e, f in zip(errors, floor)],
                             "within_bar": all(e <= BARS[key] * f for e, f in zip(errors, floor))})
    print(f"Relative Frobenius errors against fp64, and how many rounding floors they are. "
          f"[B, H, S, D] = {rows[0]['shape']}, {name}, torch {torch.__version__}\n")
    print("| inputs | type | gradients of | dQ | dK | dV | within the bar |\n|---|---|---|---|---|---|---|")
    for r in rows:
        cells = " | ".join(f"{e:.2e} ({f:.2f} x)" for e, f in zip(r["error"], r["floors"]))
        print(f"| {r['input']} | {r['type']} | {r['who']} | {cells} | {'yes' if r['within_bar'] else 'no'} |")
    if out:
        with open(out, "w") as file:
            json.dump({"gpu": name, "torch": torch.__version__, "rows": rows}, file, indent=1)
            file.write("\n")
    return 0 if all(r["within_bar"] for r in rows if r["who"].startswith("ours")) else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: precision_h200.py DIRECTORY [OUT.json] [cpu]")
    sys.exit(main(*sys.argv[1:]))
