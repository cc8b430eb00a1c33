# models_beside.py: the attention that models use: phases from 25 on beside the kernels that they are made of (19 and
# 24), and beside PyTorch where it can say the same: FlexAttention (compiled), cuDNN and FlashAttention-2 by SDPA, and
# varlen_attn. One process, in turn, on the same tensors; each is compared with fp64 before it is timed. Rates are of
# visible pairs.
# python3 tests/bench/models_beside.py --library build/default/lib/libflash-passes.so --out h200-models.json [FAMILY…]
import argparse
import inspect
import math
import random
import statistics
import sys

from passes import Passes, Training
from results import gpu_environment, write_results
from torch_side import Turns, relative

D, TOKENS = 128, 16384  # B * N
PACKED = 65536  # tokens of all sequences of a mix
WINDOW, DROPPED, CAP = 1024, 0.1, 30
BARS = (1.5, 2, 2, 2)  # O, dQ, dK, dV of phases, in rounding floors; four times as much for PyTorch's


class Case:
    """One kind of attention on given tensors. ours: phases by name, as (number, tensors, options); torchs: functions
    of q, k, v that give O; pairs: how many (row, key) are seen; exact(S): scores of a head in fp64, masked, of each of
    `sequences`, (first, end), by itself."""

    def __init__(self, name, q, k, v, pairs, exact=None):
        self.name, self.q, self.k, self.v, self.pairs, self.exact = name, q, k, v, pairs, exact
        self.ours, self.torchs, self.base, self.sequences = {}, {}, None, [(0, q.shape[2])]
        self.wanted = []  # whose gradients PyTorch makes beside those of q, k and v


def causal_scores(S):
    import torch

    return S.masked_fill_(torch.ones_like(S, dtype=torch.bool).triu_(1), -math.inf)


def band_scores(S):
    import torch

    return causal_scores(S).masked_fill_(torch.ones_like(S, dtype=torch.bool).tril_(-WINDOW), -math.inf)


def causal_pairs(N, window=None):
    return sum(min(i + 1, window or N) for i in range(N))


def flex(torch, case, score=None, mask=None, of_entries=False):
    """FlexAttention compiled for the case; without a mask all keys are seen. of_entries: each has a mask of its own."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    B, H, N, _ = case.q.shape
    compiled = torch.compile(flex_attention, dynamic=False)
    blocks = create_block_mask(mask, B if of_entries else None, None, N, N, device="cuda") if mask else None
    grouped = case.k.shape[1] != H
    return lambda q, k, v: compiled(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=grouped)


def sdpa(torch, backend, **options):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    return run


def tensors(torch, B, H, Hk, N):
    torch.manual_seed(0)
    return [torch.randn(B, h, N, D, device="cuda", dtype=torch.bfloat16) for h in (H, Hk, Hk)]


def grouped(torch, N, causal):
    H, Hk, B = 32, 8, TOKENS // N
    q, k, v = tensors(torch, B, H, Hk, N)
    pairs = B * H * (causal_pairs(N) if causal else N * N)
    case = Case(f"grouped heads, {'causal' if causal else 'full'}", q, k, v, pairs, causal_scores if causal else None)
    whole = [x.repeat_interleave(H // Hk, 1) for x in (k, v)]
    case.ours = {"25": ("25", (q, k, v), {"causal": causal}), "25m": ("25m", (q, k, v), {"causal": causal})}
    case.base = {"equal heads": (q, *whole), "causal": causal}
    case.torchs = {"cudnn": sdpa(torch, "CUDNN_ATTENTION", is_causal=causal, enable_gqa=True),
                   "flex": flex(torch, case, mask=(lambda b, h, i, j: i >= j) if causal else None)}
    return case


def one_kind(torch, name, N, phase, exact, pairs, options, torchs, more=None, causal=True):
    """pairs: of a head, on average over the batch entries."""
    H, B = 16, TOKENS // N
    q, k, v = tensors(torch, B, H, H, N)
    case = Case(name, q, k, v, B * H * pairs, exact)
    case.ours = {phase: (phase, (q, k, v), {"causal": causal, **options, "more": more(B, H) if more else {}})}
    case.base = {"equal heads": (q, k, v), "causal": causal}
    case.torchs = torchs(case)
    return case


def causal_mask(b, h, i, j):
    return i >= j


def window(torch, N, _):
    return one_kind(torch, f"window {WINDOW}", N, "26", band_scores, causal_pairs(N, WINDOW), {"left": WINDOW - 1},
                    lambda case: {"flex": flex(torch, case, mask=lambda b, h, i, j: (i >= j) & (i - j < WINDOW))})


def dropout(torch, N, _):
    # What is dropped is another choice in each library; right is what tests say. Here O has no exact value.
    return one_kind(torch, f"dropout {DROPPED}", N, "29", None, causal_pairs(N), {"dropout": DROPPED, "seed": 1},
                    lambda case: {"torch flash": sdpa(torch, "FLASH_ATTENTION", is_causal=True),
                                  "torch flash with dropout": sdpa(torch, "FLASH_ATTENTION", is_causal=True,
                                                               dropout_p=DROPPED)})


def mix(mean):
    """Log-normal lengths, PACKED tokens in all, always the same ones."""
    draw, of = random.Random(0), []
    while sum(of) < PACKED:
        length = max(1, round(draw.lognormvariate(math.log(mean) - 0.5, 1)))  # of which the mean is e^(mu + 1/2)
        of.append(min(length, PACKED - sum(of)))
    return of


def one_length(of):
    """The length in whole tiles of 128 of which as many tokens, masked, see about as many pairs."""
    return round(2 * sum(map(causal_pairs, of)) / sum(of) / 128) * 128


def lengths(torch, mean, _):
    from torch.nn.attention.varlen import varlen_attn

    H, of = 16, mix(mean)
    ends = [sum(of[:n]) for n in range(len(of) + 1)]
    torch.manual_seed(0)
    packed = [torch.randn(PACKED, H, D, device="cuda", dtype=torch.bfloat16) for _ in "QKV"]
    q, k, v = (x.transpose(0, 1)[None] for x in packed)  # [1, H, total, D] of memory [total, H, D]
    case = Case(f"{len(of)} sequences, {min(of)} to {max(of)}", q, k, v, H * sum(map(causal_pairs, of)), causal_scores)
    case.sequences = list(zip(ends, ends[1:]))
    begins = torch.tensor(ends, dtype=torch.int32, device="cuda")
    more = {name: begins[None, None] for name in ("cu_seqlens_q", "cu_seqlens_k")}
    case.ours = {"27": ("27", (q, k, v), {"causal": True, "more": more})}
    # The same memory, as sequences of one length.
    N = one_length(of)
    B = PACKED // N
    equal = (x[:B * N].unflatten(0, (B, N)).transpose(1, 2) for x in packed)
    case.base = {"equal heads": tuple(equal), "causal": True}
    number = torch.repeat_interleave(torch.arange(len(of), device="cuda"), torch.tensor(of, device="cuda"))
    masked = {"window_size": (-1, 0)} if "window_size" in inspect.signature(varlen_attn).parameters else {
        "is_causal": True}

    def varlen(q, k, v):
        rows = (x[0].transpose(0, 1) for x in (q, k, v))
        return varlen_attn(*rows, begins, begins, max(of), max(of), **masked).transpose(0, 1)[None]

    case.torchs = {"varlen": varlen,
                   "flex": flex(torch, case, mask=lambda b, h, i, j: (i >= j) & (number[i] == number[j]))}
    return case


def softcap(torch, N, causal):
    def capped(s):
        return CAP * torch.tanh(s / CAP)
    return one_kind(torch, f"softcap {CAP}", N, "28", lambda S: causal_scores(capped(S)), causal_pairs(N),
                    {"softcap": CAP}, causal=causal, torchs=lambda case: {
                        "flex": flex(torch, case, lambda s, b, h, i, j: capped(s), causal_mask)})


def alibi(torch, N, causal):
    slopes = 2 ** (-0.5 * torch.arange(1, 17, device="cuda", dtype=torch.float32))  # 2^(-8 h / H)
    place = torch.arange(N, device="cuda")

    def exact(S):  # of the last head
        return causal_scores(S - slopes[-1].double() * (place[:, None] - place).abs())
    return one_kind(torch, "ALiBi", N, "28", exact, causal_pairs(N), {}, causal=causal,
                    more=lambda B, H: {"slopes": slopes.view(1, H, 1)}, torchs=lambda case: {
                        "flex": flex(torch, case, lambda s, b, h, i, j: s - slopes[h] * (i - j), causal_mask)})


def bias(torch, N, with_gradient):
    """An additive bias of each head, for all batch entries; with its gradient or without. All keys are seen."""
    added = torch.randn(1, 16, N, N, device="cuda", dtype=torch.bfloat16).requires_grad_(with_gradient)
    more = {"bias": added.detach()}
    if with_gradient:
        more["dbias"] = torch.full(added.shape, torch.nan, device="cuda")
    # PyTorch makes the bias's gradient only where it is asked for it: measure() asks for what case.wanted names.
    case = one_kind(torch, f"bias{' and its gradient' if with_gradient else ''}", N, "28",
                    lambda S: S + added[0, -1].detach().double(), N * N, {}, causal=False,
                    more=lambda B, H: more, torchs=lambda case: {
                        "flex": flex(torch, case, lambda s, b, h, i, j: s + added[0, h, i, j])})
    if with_gradient:
        case.wanted = [added]
    else:
        case.torchs["cudnn"] = sdpa(torch, "CUDNN_ATTENTION", attn_mask=added)
    return case


def documents(torch, N, causal):
    """Documents one behind the other, of log-normal lengths; a block mask says which tiles have pairs of one."""
    B = TOKENS // N
    lengths = torch.exp(torch.randn(64, generator=torch.Generator().manual_seed(5)) * 0.5 + math.log(N / 3))
    ends = lengths.long().clamp(min=1).cumsum(0).view(-1)
    token = torch.arange(TOKENS)  # of all entries, on end: one document ends where an entry does
    ids = (torch.bucketize(token, ends, right=True) + token // N * 64).view(B, N).int().cuda()
    counts = [torch.unique(row, return_counts=True)[1] for row in ids]
    pairs = sum(sum(causal_pairs(int(n)) if causal else int(n) ** 2 for n in count) for count in counts) / B
    least, most = (getattr(ids.view(B, -1, 64), end)(2).values for end in ("min", "max"))

    def kinds():  # 0: no pair, 1: some, 2: all; numbers grow
        q_least, q_most, k_least, k_most = least[:, :, None], most[:, :, None], least[:, None], most[:, None]
        some = (q_least <= k_most) & (k_least <= q_most)
        return (some.byte() + (some & (q_least == q_most) & (k_least == k_most)).byte())[:, None].contiguous()

    def exact(S):  # of the last entry
        hidden = ids[-1][:, None] != ids[-1]
        return (causal_scores(S) if causal else S).masked_fill_(hidden, -math.inf)

    def seen(b, h, i, j):
        return (ids[b, i] == ids[b, j]) & (i >= j if causal else True)
    places = ids.view(B, 1, N)
    return one_kind(torch, f"documents, {'causal' if causal else 'full'}", N, "28", exact, pairs, {}, causal=causal,
                    more=lambda B, H: {"doc_q": places, "doc_k": places, "block_mask": kinds()},
                    torchs=lambda case: {"flex": flex(torch, case, mask=seen, of_entries=True)})


FAMILIES = {"grouped": (grouped, (2048, 8192, 16384), (False, True)), "window": (window, (2048, 16384), (True,)),
            "lengths": (lengths, (512, 2048), (True,)), "dropout": (dropout, (2048, 8192, 16384), (True,)),
            "softcap": (softcap, (2048, 16384), (True,)),
            "alibi": (alibi, (2048, 16384), (True,)),
            "bias": (bias, (2048, 8192), (False, True)),
            "documents": (documents, (2048, 16384), (False, True))}


def exact_head(torch, case, dout):
    """O, dQ, dK and dV in fp64 of the last head of Q, as the definition says; dK and dV are that head's share."""
    group = case.q.shape[1] // case.k.shape[1]
    scale = torch.tensor(1 / math.sqrt(D), dtype=torch.float32).double().item()
    parts = []
    for first, end in case.sequences:
        q, k, v, do = (x[-1, -1, first:end].double() for x in (case.q, case.k, case.v, dout))
        S = q @ k.T * scale
        with torch.enable_grad():
            S.requires_grad_()
            P = torch.softmax(case.exact(S.clone()) if case.exact else S, 1)
            o = P @ v
            dS, = torch.autograd.grad(o, S, do)
        parts.append([o.detach(), dS @ k * scale] + ([dS.T @ q * scale, P.detach().T @ do] if group == 1 else []))
    return [torch.cat(x) for x in zip(*parts)]


def check(name, got, exact, slack=1):
    for what, bar, x, want in zip(("O", "dQ", "dK", "dV"), BARS, got, exact):
        error = relative(x[-1, -1], want) / relative(want.to(x.dtype), want)
        if not error <= bar * slack:
            sys.exit(f"wrong: {name}: {what} is {error:.2f} rounding floors from fp64; expected at most {bar * slack}")


def measure(torch, passes, family, case, N, turns, rounds):
    dout = torch.randn_like(case.q)
    runs, gradients = {}, {}
    exact = exact_head(torch, case, dout) if case.exact or case.name.startswith("grouped") else None
    for name, (phase, qkv, options) in case.ours.items():
        ours = Training(passes, phase, *qkv, dout, kept=False, **options)
        ours()
        if exact:
            check(f"{name}, {case.name}, N {N}", (ours.o, *ours.gradients()), exact)
        runs[name], gradients[name] = ours.forward, ours.backward
    base, causal = case.base["equal heads"], case.base["causal"]
    equal = Training(passes, 24, *base, torch.randn_like(base[0]), causal, kept=False)  # its forward pass is 19's
    equal()
    runs["19 plain"], gradients["24 plain"] = equal.forward, equal.backward
    for name, function in case.torchs.items():
        inputs = [x.detach().requires_grad_() for x in (case.q, case.k, case.v)]
        try:
            out = function(*inputs)
            wanted = inputs + case.wanted
            grads = torch.autograd.grad(out, wanted, dout, retain_graph=True)
        except RuntimeError as refused:
            print(f"{name} refuses {case.name}: {str(refused).splitlines()[0][:150]}")
            continue
        if exact:
            check(f"{name}, {case.name}, N {N}", (out, *grads), exact, 4)
        runs[name] = lambda function=function: function(case.q, case.k, case.v)
        gradients[name] = lambda out=out, wanted=wanted: torch.autograd.grad(out, wanted, dout, retain_graph=True)
    with torch.no_grad():
        forward = turns.times(runs, rounds)
    times = {("forward", name): t for name, t in forward.items()}
    times |= {("backward", name): t for name, t in turns.times(gradients, rounds).items()}
    B, H, S, _ = base[0].shape
    plain = B * H * (causal_pairs(S) if causal else S * S)
    rows = []
    for (what, name), samples in times.items():
        pairs = plain if name.endswith(" plain") else case.pairs
        ms = statistics.median(samples)
        first = next(iter(case.ours))
        rows.append({"sweep": f"{case.name}, {what}", "pass": what, "family": family, "case": case.name,
                     "N": N, "D": D, "causal": causal, "type": "bfloat16", "kernel": name,
                     "samples": len(samples), "median_ms": ms,
                     "tflops": (4 if what == "forward" else 10) * pairs * D / ms * 1e-9,
                     "ours_over": statistics.median(b / a for a, b in zip(times[what, first], samples)) *
                     case.pairs / pairs})
    for what in ("forward", "backward"):
        print(f"{case.name:32} N {N:5} {what:8} " + "  ".join(
            f"{row['kernel']} {row['tflops']:.0f} ({row['ours_over']:.3f})" for row in rows
            if row["pass"] == what), flush=True)
    return rows


def main(words):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(FAMILIES), help=" ".join(FAMILIES))
    parser.add_argument("--library", required=True, help="libflash-passes.so")
    parser.add_argument("--out", help="a file for the figures, JSON")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(words)
    import torch

    torch._dynamo.config.recompile_limit = 1000  # else FlexAttention falls back to its unfused form, silently
    passes, turns, rows = Passes(options.library), Turns(), []
    for family in options.families:
        make, lengths_of, masks = FAMILIES[family]
        for causal in masks:
            for N in lengths_of:
                rows += measure(torch, passes, family, make(torch, N, causal), N, turns, options.rounds)
                torch.cuda.empty_cache()
                if options.out:
                    write_results(options.out, gpu_environment(), rows)


if __name__ == "__main__":
    main(sys.argv[1:])
