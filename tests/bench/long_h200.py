# long_h200.py: how precise are O and LSE where a row sees 2^15 to 2^20 keys? Our phases on tensor cores, through
# libflashphases, beside PyTorch's flash and cuDNN backends on the same numbers, against fp64 on the GPU. Writes
# h200-long.json and long-h200.md. Exits with 1 if one of ours misses its bar (docs/conventions.md).
# python3 tests/bench/long_h200.py PATH/libflashphases.so FOLDER
import math
import os
import sys

from beside_h200 import Case, Library, participants
from results import gpu_environment, write_results

D, ROWS = 64, 128
LENGTHS = (2**15, 2**17, 2**20)
MANY = 132  # heads, one for each multiprocessor: then FlashAttention-2 does not split the keys among blocks
HEAD = """# Long sequences

O and LSE of {rows} rows of Q, each of which sees S_k keys of N(0,1); D = {D}. O's error against fp64 in roundings: that
of the exact O rounded to the type. Its bar is √(1.5² + (S_k/48 · 2⁻²⁴ / one rounding)²) of them, LSE's 2·10⁻⁶ of its
size ([conventions.md](../conventions.md) says why). FlashAttention-2 with one head splits the keys among blocks, each
of which adds up a part; with {many} heads it does not.
"""


def exact(q, k, v):
    """O and LSE in fp64, [ROWS, D] and [ROWS]."""
    import torch

    s = q.double() @ k.double().T / math.sqrt(D)
    return torch.softmax(s, -1) @ v.double(), torch.logsumexp(s, -1)


def ours(library, phases, q, k, v):
    """{name: (O, LSE)} of the phases that can."""
    import torch

    found = {}
    for number, name in phases.items():
        type = str(q.dtype)[6:]
        if not library.can(number, type, D) or library.can(number, "float32", D):
            continue
        o, lse = torch.empty_like(q), torch.empty(1, 1, ROWS, dtype=torch.float32, device=q.device)
        call = library.forward(Case("long", 1, 1, k.shape[2], D, False, type), number, q, k, v, o, lse,
                               torch.cuda.current_stream().cuda_stream)
        call()
        torch.cuda.synchronize()
        found[name] = o[0, 0], lse[0, 0]
    return found


def from_torch(q, k, v, heads):
    """{name: (O, LSE or None)} of the last head of `heads` equal ones."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    many = [x.expand(1, heads, -1, -1) for x in (q, k, v)]
    found = {}
    o, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(*many)
    found["torch flash"] = o[0, -1], lse[0, -1]
    if heads == 1:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            found["torch cudnn"] = torch.nn.functional.scaled_dot_product_attention(q, k, v)[0, 0], None
    return found


def table(rows):
    lines = ["| type | S_k | who | heads | O, roundings | its bar | LSE, share of its bar |",
             "|---|---:|---|---:|---:|---:|---:|"]
    for r in rows:
        lse = "" if r["lse_share"] is None else f"{r['lse_share']:.2f}"
        lines.append(f"| {r['type']} | {r['Sk']} | {r['who']} | {r['heads']} | {r['roundings']:.2f} | {r['bar']:.2f} "
                     f"| {lse} |")
    return "\n".join(lines) + "\n"


def main(path, folder):
    import torch

    library, rows, wrong = Library(path), [], 0
    phases = participants(library.can)
    for type in ("bfloat16", "float16"):
        for Sk in LENGTHS:
            torch.manual_seed(Sk)
            q, k, v = (torch.randn(1, 1, S, D, device="cuda").to(getattr(torch, type)) for S in (ROWS, Sk, Sk))
            want, want_lse = exact(q[0, 0], k[0, 0], v[0, 0])
            floor = float((want.to(q.dtype).double() - want).norm() / want.norm())
            bar = math.hypot(1.5, Sk / 48 * 2**-24 / floor)
            results = [(name, 1, result) for name, result in ours(library, phases, q, k, v).items()]
            for heads in (1, MANY):
                results += [(name, heads, result) for name, result in from_torch(q, k, v, heads).items()]
            for who, heads, (o, lse) in results:
                roundings = float((o.double() - want).norm() / want.norm()) / floor
                share = None
                if lse is not None:
                    share = float(((lse.double() - want_lse).abs() / (2e-6 * want_lse.abs().clamp(min=1))).max())
                rows.append({"type": type, "Sk": Sk, "who": who, "heads": heads, "D": D, "roundings": roundings,
                             "bar": bar, "floor": floor, "lse_share": share})
                wrong += who in phases.values() and not (roundings <= bar and share <= 1)
                print(f"{type:9} {Sk:8} {who:24} {heads:4} {roundings:6.2f} of {bar:5.2f}  LSE {share}")
            del q, k, v, want
    environment = gpu_environment()
    write_results(os.path.join(folder, "h200-long.json"), environment, rows)
    with open(os.path.join(folder, "long-h200.md"), "w", encoding="utf-8") as file:
        file.write(HEAD.format(rows=ROWS, D=D, many=MANY) + "\n" + table(rows) + "\n" +
                   ", ".join(f"{key} {environment[key]}" for key in ("gpu", "driver", "cuda", "torch", "cudnn",
                                                                     "commit", "date")) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: long_h200.py PATH/libflashphases.so FOLDER")
    sys.exit(main(*sys.argv[1:]))
