# precision_h200.py: how precise are dQ, dK and dV? Ours, from the files of flash-backward-precision, beside those of
# PyTorch's flash, efficient and cuDNN backends on the same inputs; against fp64 on the GPU. Writes JSON.
# build/bin/flash-backward-precision /tmp/gradients && python3 tests/bench/precision_h200.py /tmp/gradients OUT.json
import math
import os
import sys

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from results import gpu_environment, our_phase, write_results

INPUTS = {
    "normal": "N(0,1)",
    "shifted": "N(1,1)",
    "uniform": "uniform[0,1)",
    "outliers": "outliers",
    "times4": "Q, K, V times 4",
}
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


def main(directory, out, device="cuda"):
    rows, wrong, ours = [], 0, our_phase(directory)
    for key, label in INPUTS.items():
        for type_name, dtype in TYPES.items():
            def load(x):
                path = os.path.join(directory, f"{key}_{type_name}_{x}.npy")
                return torch.from_numpy(numpy.load(path)).to(device).to(dtype)

            q, k, v, do = (load(x) for x in ("q", "k", "v", "dout"))
            want = exact(q, k, v, do)
            floor = [relative(x.to(dtype), x) for x in want]
            results = {ours: [load(x) for x in ("dq", "dk", "dv")]}
            for backend_name, backend in BACKENDS.items():
                try:
                    results[backend_name] = from_torch(backend, q, k, v, do)
                except RuntimeError as error:
                    print(f"# {backend_name}, {label}, {type_name}: {str(error).splitlines()[0]}", file=sys.stderr)
            for who, got in results.items():
                errors = [relative(x, w) for x, w in zip(got, want)]
                rows.append({"input": label, "type": type_name, "who": who, "shape": list(q.shape), "bar": BARS[key],
                             "floor": floor, "error": errors})
                within = all(e <= BARS[key] * f for e, f in zip(errors, floor))
                wrong += who == ours and not within
                print(f"{label:16} {type_name:9} {who:16} floors " +
                      " ".join(f"{e / f:8.2f}" for e, f in zip(errors, floor)) + ("" if within else "  over the bar"))
    write_results(out, gpu_environment(), rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: precision_h200.py DIRECTORY OUT.json [cpu]")
    sys.exit(main(*sys.argv[1:]))
