"""python.py: every field of the structs as Python writes it, on the CPU, against attention that is written down anew in
fp64, one number after another. Needs no package but flashphases: tensors are ctypes' memory with torch's names.
    FLASHPHASES_LIBRARY=…/libflashphases.so python3 tests/library/python.py
"""

import ctypes
import math
import pathlib
import random
import sys

if "--installed" not in sys.argv:  # wheel_test.py has another one
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "phases/library"))
import flashphases  # noqa: E402

B, H, HK, SQ, SK, D, DV = 2, 4, 2, 5, 70, 8, 3
CTYPES = {"float32": ctypes.c_float, "int32": ctypes.c_int32, "bool": ctypes.c_bool, "uint8": ctypes.c_uint8}


class Array:
    """What the package asks of a tensor: dense memory."""

    def __init__(self, shape, value, dtype="float32"):
        self.shape, self.dtype = tuple(shape), "torch." + dtype
        self.values = (CTYPES[dtype] * math.prod(shape))(*(value(i) for i in range(math.prod(shape))))

    def stride(self):
        return tuple(math.prod(self.shape[axis + 1:]) for axis in range(len(self.shape)))

    def data_ptr(self):
        return ctypes.addressof(self.values)

    def __getitem__(self, index):
        """An element, by as many indices as there are axes; an axis of 1 is everybody's."""
        index = index[-len(self.shape):]
        return self.values[sum(i * step for i, step, n in zip(index, self.stride(), self.shape) if n > 1)]


def expected(q, k, v, scale=None, softcap=0, slopes=None, bias=None, mask=None, doc_q=None, doc_k=None,
             block_mask=None, sinks=None, seqused_q=None, seqused_k=None, cu_seqlens_q=None, cu_seqlens_k=None,
             sees=lambda i, j, rows, keys: True):
    """O and LSE by docs/conventions.md, as dictionaries from (b, h, i)."""
    batch, heads, rows_of_all, width = q.shape
    group, outputs, lses = heads // k.shape[1], {}, {}
    sequences = [(n, 0, rows_of_all, 0, k.shape[2]) for n in range(batch)]
    if cu_seqlens_q:
        ends = list(zip(cu_seqlens_q.values, cu_seqlens_k.values))
        sequences = [(0, i, i_end - i, j, j_end - j) for (i, j), (i_end, j_end) in zip(ends, ends[1:])]
    for b, h, i in ((b, h, i) for b in range(batch) for h in range(heads) for i in range(rows_of_all)):
        outputs[b, h, i], lses[b, h, i] = [0.0] * v.shape[3], -math.inf  # a row of no sequence
    for n, (b, first_row, rows, first_key, keys) in enumerate(sequences):
        rows = seqused_q[(n,)] if seqused_q else rows
        keys = seqused_k[(n,)] if seqused_k else keys
        for h, i in ((h, i) for h in range(heads) for i in range(rows)):
            logits = {}
            for j in range(keys):
                dot = sum(q[b, h, first_row + i, d] * k[b, h // group, first_key + j, d] for d in range(width))
                s = dot * (1 / math.sqrt(width) if scale is None else scale)
                s = softcap * math.tanh(s / softcap) if softcap else s
                s -= slopes[b, h] * abs(i + keys - rows - j) if slopes else 0
                s += bias[b, h, i, j] if bias else 0
                block = block_mask[b, h, i // 64, j // 64] if block_mask else 1
                asked = (not mask or mask[b, h, i, j]) and (not doc_q or doc_q[b, i] == doc_k[b, j])
                if sees(i, j, rows, keys) and (block == 2 or block == 1 and asked) and s > -math.inf:
                    logits[j] = s
            sink = [sinks[(h,)]] if sinks else []
            top = max([*logits.values(), *sink], default=-math.inf)
            total = sum(math.exp(s - top) for s in [*logits.values(), *sink])
            lses[b, h, first_row + i] = top + math.log(total) if total else -math.inf
            outputs[b, h, first_row + i] = [
                sum(math.exp(s - top) * v[b, h // group, first_key + j, d] for j, s in logits.items()) / (total or 1)
                for d in range(v.shape[3])]
    return outputs, lses


def normal(seed):
    source = random.Random(seed)
    return lambda _: source.gauss(0, 1)


def distance(got, want):
    return 0 if got == want else abs(got - want) if abs(got - want) < math.inf else math.inf  # of NaN, too


def compare(name, tensors, features, reference):
    q, k, v = tensors
    o, lse = Array((*q.shape[:3], v.shape[3]), lambda _: 7), Array(q.shape[:3], lambda _: 7)
    args = flashphases.forward_args(q, k, v, o, lse, machine=flashphases.CPU, threads=1, **features)
    flashphases.check(flashphases.library.flashphases_forward(args, None, 0, None))
    outputs, lses = expected(q, k, v, **reference)
    off = max(distance(o[b, h, i, d], x) for (b, h, i), row in outputs.items() for d, x in enumerate(row))
    lse_off = max(distance(lse[at], x) for at, x in lses.items())
    print(f"{name}: O off by {off:.1e}, LSE by {lse_off:.1e}")
    if not (off <= 4e-6 and lse_off <= 4e-6):
        sys.exit(f"{name} is wrong")
    return list(o.values)


def gradients():
    """All that a backward pass writes, by central differences of the reference, one number after another."""
    shapes = {"q": (2, 4, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 3), "bias": (2, 1, 3, 5), "sinks": (4,)}
    arrays = {name: Array(shape, normal(20 + n)) for n, (name, shape) in enumerate(shapes.items())}
    dout, dlse = Array((2, 4, 3, 3), normal(30)), Array((2, 4, 3), normal(31))

    def loss():
        o, lse = expected(arrays["q"], arrays["k"], arrays["v"], bias=arrays["bias"], sinks=arrays["sinks"],
                          softcap=1.5, sees=window(99, 0, True))
        return sum(dout[(*at, d)] * x for at, row in o.items() for d, x in enumerate(row)) + sum(
            dlse[at] * x for at, x in lse.items())
    o, lse, m, l = (Array(shape, lambda _: 7) for shape in (dout.shape, *[dlse.shape] * 3))
    forward = flashphases.forward_args(arrays["q"], arrays["k"], arrays["v"], o, lse, "bottom-right", m=m, l=l,
                                       machine=flashphases.CPU, bias=arrays["bias"], sinks=arrays["sinks"], softcap=1.5)
    flashphases.check(flashphases.library.flashphases_forward(forward, None, 0, None))
    written = {"d" + name: Array(shape, lambda _: 7) for name, shape in shapes.items()}
    backward = flashphases.backward_args(forward, dout, dlse=dlse, **written)
    if flashphases.chosen_phase(backward) != -1:
        sys.exit("gradients on the CPU are not the definition's")
    flashphases.check(flashphases.library.flashphases_backward(backward, None, 0, None))
    step = 2.0**-8
    for name, array in arrays.items():
        for at, x in enumerate(array.values):
            around = []
            for moved in (x + step, x - step):
                array.values[at] = moved
                around.append(loss())
            array.values[at] = x
            off = distance(written["d" + name].values[at], (around[0] - around[1]) / (2 * step))
            if not off <= 2e-4:
                sys.exit(f"d{name}[{at}] is wrong by {off:.1e}")
        print(f"d{name}: {len(array.values)} numbers agree")
    for text, change in {"dq's shape is [2, 4, 3, 3]; expected [2, 4, 3, 4]": {"dq": o},
                         "dlse is float32 [2, 4, 3, 3]; expected float32 [2, 4, 3], dense": {"dlse": o}}.items():
        try:
            flashphases.backward_args(forward, dout, **{**written, "dlse": dlse, **change})
            sys.exit(f"taken, not refused: {text}")
        except ValueError as error:
            if str(error) != text:
                sys.exit(f"refused as '{error}', not as '{text}'")


def window(left, right, bottom_right):
    return lambda i, j, rows, keys: -left <= j - i - (keys - rows if bottom_right else 0) <= right


def main():
    q, k, v = (Array(shape, normal(seed)) for seed, shape in
               enumerate([(B, H, SQ, D), (B, H, SK, D), (B, H, SK, D)]))
    few_k, few_v = Array((B, HK, SK, D), normal(3)), Array((B, HK, SK, DV), normal(4))
    plain = compare("nothing", (q, k, v), {}, {})
    compare("grouped heads and Dv", (q, few_k, few_v), {}, {})
    both = {
        "scale": {"scale": -0.3}, "softcap": {"softcap": 0.7},
        "slopes of all": {"slopes": Array((H,), lambda h: 2**-(h + 1))},
        "slopes": {"slopes": Array((B, H), lambda n: 0.1 * n)},
        "bias": {"bias": Array((B, H, SQ, SK), normal(5))},
        "bias of all heads": {"bias": Array((B, 1, SQ, SK), normal(6))},
        "bias of all rows": {"bias": Array((SK,), normal(7))},
        "mask": {"mask": Array((1, H, SQ, SK), lambda n: n % 3 > 0, "bool")},
        "documents": {"doc_q": Array((B, SQ), lambda i: i % 2, "int32"),
                      "doc_k": Array((B, SK), lambda j: j // 9 % 3, "int32")},
        "block mask": {"block_mask": Array((H, 1, 2), lambda n: n % 3, "uint8"),
                       "mask": Array((SQ, SK), lambda n: n % 5 > 1, "bool")},
        "sinks": {"sinks": Array((H,), normal(8))},
        "lengths": {"seqused_q": Array((B,), lambda n: 3 + n, "int32"),
                    "seqused_k": Array((B,), lambda n: 66 - 30 * n, "int32")},
    }
    for name, features in both.items():
        if compare(name, (q, k, v), features, features) == plain:
            sys.exit(f"{name} changes nothing")
    for align in ("top-left", "bottom-right"):
        below = align == "bottom-right"
        sees = {"sees": window(3, 1, below)}
        compare(f"window, {align}", (q, k, v), {"window": (3, 1), "align": align}, sees)
        compare(f"window of all on the right, {align}", (q, k, v), {"window": (3, None), "align": align},
                {"sees": window(3, SK, below)})
        compare(f"causal window, {align}", (q, k, v), {"window": (3, 9), "causal": align},
                {"sees": window(3, 0, below)})
        compare(f"causal, {align}", (q, k, v), {"causal": align}, {"sees": window(SK + SQ, 0, below)})
    packed = [Array((1, H, 9, D), normal(9)), Array((1, HK, 30, D), normal(10)), Array((1, HK, 30, DV), normal(11))]
    ends = {"cu_seqlens_q": Array((4,), lambda n: [0, 4, 4, 8][n], "int32"),
            "cu_seqlens_k": Array((4,), lambda n: [0, 11, 20, 29][n], "int32")}
    compare("packed", packed, {**ends, "causal": "bottom-right"}, {**ends, "sees": window(99, 0, True)})
    used = {**ends, "seqused_q": Array((3,), lambda n: [3, 0, 4][n], "int32"),
            "seqused_k": Array((3,), lambda n: [11, 2, 0][n], "int32")}
    compare("packed with gaps", packed, used, used)

    def dropped(seed):
        o = Array(q.shape, lambda _: 7)
        args = flashphases.forward_args(q, k, v, o, machine=flashphases.CPU, dropout=0.5, seed=seed)
        flashphases.check(flashphases.library.flashphases_forward(args, None, 0, None))
        return list(o.values)
    if len({tuple(dropped(seed)) for seed in (0, 1, 1 << 32)}) != 3 or dropped(5) != dropped(5):
        sys.exit("dropout does not go by its seed, all 64 bits of it")
    gradients()
    refused = flashphases.forward_args(q, k, v, Array(q.shape, lambda _: 7))
    refused.Sk = -7
    try:
        flashphases.check(flashphases.library.flashphases_workspace(refused, ctypes.c_size_t()))
        sys.exit("a negative length was taken")
    except flashphases.Refused as error:
        if str(error) != "k's sequence length S is -7; expected 0 or more; correct the shape" or error.status != 1:
            sys.exit(f"a negative length was refused as: {error}")
    phases = {phase.number: phase for phase in flashphases.phases()}
    if phases[-1].name != b"definition" or phases[8].name != b"08-lse" or phases[8].forward.capability != 75:
        sys.exit("the phases are described wrongly")
    refusals = {
        "bias's shape is [1, 1, 5, 69]; expected [2, 4, 5, 70], of which the first 3 may be 1":
            {"bias": Array((SQ, SK - 1), normal(1))},
        "mask's type is uint8; expected bool": {"mask": Array((SQ, SK), lambda n: 1, "uint8")},
        "sinks is float32 [3]; expected float32 [4], dense": {"sinks": Array((3,), normal(1))},
        "align is None; expected the diagonal's name beside window, where causal does not name it": {"window": (1, 1)},
    }
    for text, features in refusals.items():
        try:
            compare(text, (q, k, v), features, {})
            sys.exit(f"taken, not refused: {text}")
        except ValueError as error:
            if str(error) != text:
                sys.exit(f"refused as '{error}', not as '{text}'")


if __name__ == "__main__":
    main()
