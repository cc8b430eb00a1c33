# precision_h200.py: how precise are dQ, dK and dV? Those of the phases that have a backward pass, with what a forward
# pass for training keeps and from LSE alone, beside PyTorch's flash, efficient and cuDNN backends on the same inputs;
# against fp64 on the GPU. Writes JSON. A minute on an H200.
# python3 tests/bench/precision_h200.py build/default/lib/libflash-passes.so docs/results/h200-gradients.json
import argparse
import sys

from passes import Passes, Training, name_of
from results import gpu_environment, write_results
from torch_side import BACKENDS, backend, exact_gradients, relative

# Each draws a tensor; of Q, K, V and dO in turn. The bars are the project's, in rounding floors, of dQ, dK and dV.
INPUTS = ("N(0,1)", "N(1,1)", "uniform[0,1)", "outliers", "Q, K, V times 4", "Q, K times 4", "K + 4", "V + 4")
BARS = {"uniform[0,1)": 2.4, "outliers": 3}
OTHER_BAR = 2
TYPES = ("float16", "bfloat16")
PHASES = (9, 20, 21, 22, 23, 24)


def inputs(torch, name, shape, dtype):
    """Q, K, V and dO."""
    torch.manual_seed(9)

    def draw(which):
        if name == "uniform[0,1)":
            return torch.rand(shape, device="cuda")
        x = torch.randn(shape, device="cuda")
        if name == "N(1,1)":
            return x + 1
        if name == "outliers":  # N(0,1) + N(0,100) · Bernoulli(0.001)
            return x + 10 * torch.randn(shape, device="cuda") * (torch.rand(shape, device="cuda") < 0.001)
        times = 4 if which in "QKV" and name == "Q, K, V times 4" or which in "QK" and name == "Q, K times 4" else 1
        return x * times + (4 if name == f"{which} + 4" else 0)

    return [draw(which).to(dtype) for which in ("Q", "K", "V", "dO")]


def from_torch(name, q, k, v, dout):
    import torch
    from torch.nn.attention import sdpa_kernel

    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(backend(name)):
        return torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(*leaves), leaves, dout)


def main(words):
    parser = argparse.ArgumentParser(description="Rounding floors of dQ, dK and dV, ours and PyTorch's.")
    parser.add_argument("library", help="libflash-passes.so")
    parser.add_argument("out", help="a file for the figures, JSON")
    parser.add_argument("--phases", type=int, nargs="+", default=PHASES)
    parser.add_argument("--inputs", nargs="+", choices=INPUTS, default=INPUTS)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--shape", type=int, nargs=4, default=(2, 8, 2048, 128), metavar=("B", "H", "S", "D"))
    options = parser.parse_args(words)
    import torch

    passes, rows, wrong = Passes(options.library), [], 0
    for name in options.inputs:
        for type_name in options.types:
            given = inputs(torch, name, options.shape, getattr(torch, type_name))
            want = exact_gradients(*given)[1:]
            floor = [relative(x.to(given[0].dtype), x) for x in want]
            results = {}
            for phase in options.phases:
                for kept in (True, False):
                    training = Training(passes, phase, *given, atomic=False, kept=kept)
                    training()
                    results[name_of(phase) + ("" if kept else " from LSE")] = training.gradients()
            for library in BACKENDS:
                try:
                    results[library] = from_torch(library, *given)
                except RuntimeError as error:
                    print(f"# {library}, {name}, {type_name}: {str(error).splitlines()[0]}", file=sys.stderr)
            bar = BARS.get(name, OTHER_BAR)
            for who, got in results.items():
                errors = [relative(x, w) for x, w in zip(got, want)]
                rows.append({"input": name, "type": type_name, "who": who, "shape": list(options.shape), "bar": bar,
                             "floor": floor, "error": errors})
                within = all(e <= bar * f for e, f in zip(errors, floor))
                wrong += who[0].isdigit() and "LSE" not in who and not within
                print(f"{name:16} {type_name:9} {who:34} floors " +
                      " ".join(f"{e / f:8.2f}" for e, f in zip(errors, floor)) + ("" if within else "  over the bar"))
    write_results(options.out, gpu_environment(), rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
