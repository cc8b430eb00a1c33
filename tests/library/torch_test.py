"""torch_test.py: the package flashphases with PyTorch, against attention written down in double precision: forward,
gradients, what torch asks of an op, and the functions that it stands in for. On the CPU; --device cuda: by kernels.
    FLASHPHASES_LIBRARY=…/libflashphases.so python3 tests/library/torch_test.py [--device cuda] [NAME …]
Exits with 77 and its reason where torch is absent, or too old.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import sys
import tempfile
import warnings

if "--installed" not in sys.argv:  # that of pip
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "phases/library"))

SKIPPED = 77
try:
    import torch
except ImportError:
    print("skipped: no PyTorch in", sys.executable)
    sys.exit(SKIPPED)
if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 4):
    print(f"skipped: PyTorch {torch.__version__}; expected 2.4 or newer")
    sys.exit(SKIPPED)

import flashphases  # noqa: E402
import flashphases.flash_attn as fa  # noqa: E402
import flashphases.torch as fp  # noqa: E402

DEVICE = "cpu"
TYPES = (torch.float32, torch.float16, torch.bfloat16)


class NotRun(Exception):
    """A test that says nothing here, and why."""


def on_gpu():
    return DEVICE == "cuda"


# ---- What is compared -----------------------------------------------------------------------------------------------


def usual():
    """The type of tests that are about something else: on a GPU not all that is tested has float32."""
    return torch.float16 if on_gpu() else torch.float32


def draw(*shape, dtype=torch.float32, seed=0, grad=False):
    t = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)
    return t.requires_grad_(grad)


def exact(q, k, v, causal=None, scale=None, window=None, align=None, shift=0, softcap=0.0, bias=None, mask=None,
          slopes=None, sinks=None, doc_q=None, doc_k=None, seqused_q=None, seqused_k=None):
    """o and LSE in double precision, by docs/conventions.md; a row that sees nothing gives 0 and -inf."""
    q, k, v = q.double(), k.double(), v.double()
    (B, H, Sq, D), (_, Hk, Sk, _) = q.shape, k.shape
    k, v = (t.repeat_interleave(H // Hk, 1) for t in (k, v))
    s = q @ k.transpose(2, 3) * (D**-0.5 if scale is None else scale)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    rows = torch.full((B, 1, 1, 1), Sq) if seqused_q is None else seqused_q.cpu().view(B, 1, 1, 1).long()
    keys = torch.full((B, 1, 1, 1), Sk) if seqused_k is None else seqused_k.cpu().view(B, 1, 1, 1).long()
    i, j = torch.arange(Sq).view(1, 1, Sq, 1), torch.arange(Sk).view(1, 1, 1, Sk)
    if slopes is not None:
        s = s - slopes.double().reshape(-1, H, 1, 1) * (i + keys - rows - j).abs().to(s)
    if bias is not None:
        s = s + bias.double()
    diagonal = i + shift + (keys - rows if (causal or align) == "bottom-right" else 0)
    sees = (i < rows) & (j < keys) & torch.ones(B, 1, Sq, Sk, dtype=torch.bool)
    left, right = window or (None, None)
    if causal:
        right = 0
    if left is not None:
        sees = sees & (j >= diagonal - left)
    if right is not None:
        sees = sees & (j <= diagonal + right)
    sees = sees.to(DEVICE)
    if mask is not None:
        sees = sees & mask
    if doc_q is not None:
        sees = sees & (doc_q.view(-1, 1, Sq, 1) == doc_k.view(-1, 1, 1, Sk))
    s = s.masked_fill(~sees, -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.double().view(1, H, 1, 1).expand(B, H, Sq, 1)], 3)
    empty = (s == -torch.inf).all(3, keepdim=True) | (i >= rows).to(DEVICE)
    p = torch.softmax(s.masked_fill(empty, 0), 3).masked_fill(empty, 0)[..., :Sk]
    lse = torch.logsumexp(s.masked_fill(empty, 0), 3).masked_fill(empty[..., 0], -torch.inf)
    return p @ v, lse


def relative(got, want):
    return (torch.linalg.norm(got.double() - want) / torch.linalg.norm(want).clamp(min=1e-30)).item()


def expect_o(got, want, floors=1.5):
    """fp32: 2e-6; 16 bits: so many roundings of the exact result, 2 of few numbers."""
    floor = relative(want.to(got.dtype), want)
    bar = 2e-6 if got.dtype == torch.float32 else (2 if want.numel() < 500 else floors) * floor + 2**-24
    error = relative(got, want)
    assert error <= bar, f"O's error is {error:.2e}; expected {bar:.2e} or less"


def expect_lse(got, want):
    off = torch.where(got.double() == want, 0, (got.double() - want).abs() / want.abs().clamp(min=1)).max().item()
    assert off <= (6e-6 if on_gpu() else 2e-6), f"LSE is off by {off:.1e}"


def expect_gradient(name, got, want, dtype):
    """dtype: of Q on a GPU, for dbias and dsinks too; of few numbers one rounding may be all the error
    (docs/conventions.md)."""
    floor = relative(want.to(dtype), want)
    if want.numel() < 16 and dtype != torch.float32:
        floor = max(floor, torch.finfo(dtype).eps / 2)
    bar = 5e-6 if dtype == torch.float32 else 2 * floor + 2**-22
    error = relative(got, want)
    assert error <= bar, f"{name}'s error is {error:.2e}; expected {bar:.2e} or less"


@contextlib.contextmanager
def refused(kind, *words):
    try:
        yield
    except kind as error:
        assert all(word in str(error) for word in words), f"refused as '{error}'; expected {words}"
        return
    raise AssertionError(f"taken; expected a {kind.__name__} with {words}")


# What may be asked for, alone and by twos: name, arguments.
def features(B, H, Sq, Sk, dtype):
    bools = torch.Generator().manual_seed(3)
    return {
        "scale": dict(scale=-0.3), "top-left": dict(causal="top-left"), "bottom-right": dict(causal="bottom-right"),
        "window": dict(window=(9, 3), align="bottom-right"), "causal window": dict(window=(9, None), causal="top-left"),
        "shift": dict(causal="top-left", shift=4), "softcap": dict(softcap=0.9),
        "bias": dict(bias=draw(B, 1, Sq, Sk, dtype=dtype, seed=5)),
        "mask": dict(mask=(torch.rand(1, H, Sq, Sk, generator=bools) < 0.7).to(DEVICE)),
        "slopes": dict(slopes=torch.tensor([2.0**-(h + 1) for h in range(H)], device=DEVICE)),
        "sinks": dict(sinks=draw(H, seed=6)),
        "documents": dict(doc_q=(torch.arange(B * Sq).view(B, Sq) // 9 % 4).int().to(DEVICE),
                          doc_k=(torch.arange(B * Sk).view(B, Sk) // 11 % 4).int().to(DEVICE)),
        "used": dict(seqused_q=torch.tensor([Sq - 2 * b for b in range(B)], dtype=torch.int32, device=DEVICE),
                     seqused_k=torch.tensor([Sk - 5 * b for b in range(B)], dtype=torch.int32, device=DEVICE)),
    }


def sets_of_features(B, H, Sq, Sk, dtype):
    """None, each alone, each two without a common argument."""
    all_of_them = list(features(B, H, Sq, Sk, dtype).items())
    yield "nothing", {}
    for n, (name, one) in enumerate(all_of_them):
        yield name, one
        for other_name, other in all_of_them[:n]:
            masks = ("causal", "window", "align", "shift")
            if not set(one) & set(other) and not (any(m in one for m in masks) and any(m in other for m in masks)):
                if not ("slopes" in {**one, **other} and "shift" in {**one, **other}):
                    yield f"{name} + {other_name}", {**one, **other}


# ---- Results and gradients ------------------------------------------------------------------------------------------


def test_every_feature_and_every_two():
    """O, LSE and all gradients; kernels that cannot do it refuse it by name."""
    counts = {"computed": 0, "refused": 0}
    for dtype in TYPES:
        B, H, Sq, Sk, D = 2, 4, 21, 37, 16
        Hk = H if on_gpu() and dtype == torch.float32 else 2  # no kernel has grouped heads in float32
        for name, asked in sets_of_features(B, H, Sq, Sk, dtype):
            of_leaves = {n: t.clone().requires_grad_() for n, t in asked.items() if n in ("bias", "sinks")}
            # [B, S, H, D] in memory, as a projection leaves them.
            q, k, v = (draw(B, n, h, D, dtype=dtype, seed=s).transpose(1, 2).requires_grad_()
                       for s, (n, h) in enumerate([(Sq, H), (Sk, Hk), (Sk, Hk)]))
            do, dlse = draw(B, H, Sq, D, dtype=dtype, seed=7), draw(B, H, Sq, seed=8)
            leaves = {"q": q, "k": k, "v": v, **of_leaves}
            try:
                o, lse = fp.attention(q, k, v, with_lse=True, **{**asked, **of_leaves})
                got = torch.autograd.grad((o, torch.nan_to_num(lse, neginf=0.0)), list(leaves.values()), (do, dlse))
            except flashphases.Unsupported as error:
                assert on_gpu() and str(error), f"{name} is refused: {error}"
                counts["refused"] += 1
                continue
            twins = {n: t.detach().double().requires_grad_() for n, t in leaves.items()}
            want_o, want_lse = exact(twins["q"], twins["k"], twins["v"],
                                     **{**asked, **{n: t for n, t in twins.items() if n in of_leaves}})
            want = torch.autograd.grad((want_o, torch.nan_to_num(want_lse, neginf=0.0)), list(twins.values()),
                                       (do.double(), dlse.double()))
            try:
                expect_o(o, want_o.detach())
                expect_lse(lse, want_lse.detach())
                for leaf, a, b in zip(leaves, got, want):
                    expect_gradient("d" + leaf, a, b, dtype if on_gpu() else leaves[leaf].dtype)
            except AssertionError as error:
                raise AssertionError(f"{name}, {dtype}: {error}") from None
            counts["computed"] += 1
    print("   ", counts)
    assert counts["computed"] >= (12 if on_gpu() else 200)


def test_lse_alone_and_o_alone_have_gradients():
    q, k, v = (draw(1, 2, 5, 8, seed=s, grad=True) for s in range(3))
    o, lse = fp.attention(q, k, v, with_lse=True)
    only_lse = torch.autograd.grad(lse.sum(), (q, k, v), retain_graph=True)
    assert (only_lse[2] == 0).all() and only_lse[0].norm() > 0
    both = torch.autograd.grad(o.sum() + lse.sum(), (q, k, v), retain_graph=True)
    only_o = torch.autograd.grad(o.sum(), (q, k, v))
    for a, b, c in zip(only_o, only_lse, both):
        assert torch.allclose(a + b, c, atol=1e-6)


def test_fused_projection_is_not_copied():
    qkv = draw(2, 9, 3, 4, 16)
    q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
    assert fp._readable(q) is q
    expect_o(fp.attention(q, k, v), exact(q, k, v)[0])
    assert fp.attention(q, k, v).transpose(1, 2).is_contiguous()  # as q lies, so does o
    odd = draw(2, 4, 16, 9).transpose(2, 3)  # D is not contiguous: a copy is
    expect_o(fp.attention(odd, odd, odd), exact(odd, odd, odd)[0])


@contextlib.contextmanager
def counted_looks():
    """A list that grows whenever a call is looked at; nothing was prepared before."""
    looked, check = [], fp._check
    fp._check = lambda *args, **others: looked.append(1) or check(*args, **others)
    fp._prepared.clear()
    try:
        yield looked
    finally:
        fp._check = check


def test_a_call_like_one_before_is_looked_at_once():
    with counted_looks() as looked:
        dtypes = TYPES[1:] if on_gpu() else TYPES
        for turn in range(3):  # interleaved, each time with other numbers at other addresses
            for n, dtype in enumerate(dtypes):
                q, k, v = (draw(2, 4, S, 32, dtype=dtype, seed=10 * turn + i) for i, S in enumerate((9, 13, 13)))
                rows = q.transpose(1, 2).contiguous().transpose(1, 2)  # the same numbers, heads inside rows
                longer = torch.cat([q[..., :1], q], 3)[..., 1:]  # and not at a multiple of 16
                for like, causal in ((q, None), (q, "bottom-right"), (rows, None), (longer, None)):
                    o, lse = fp.attention(like, k, v, causal, with_lse=True)
                    want, want_lse = exact(q, k, v, causal)
                    expect_o(o, want)
                    expect_lse(lse, want_lse)
                    assert o.transpose(1, 2).is_contiguous() == (like is rows)
                asked = dict(softcap=0.5 + n) if on_gpu() else dict(window=[3, 1], align="top-left", softcap=0.5 + n)
                expect_o(fp.attention(q, k, v, **asked), exact(q, k, v, **asked)[0])
                assert fp.attention(q, k, v, wide_output=True).dtype == torch.float32
            assert len(looked) == 6 * len(dtypes), "looked at anew, or others' calls taken for one's own"
        with refused(ValueError, "shapes of q, k, v"):
            fp.attention(q, k, v[:, :, :-1])
        with torch.autocast(DEVICE, torch.bfloat16):
            assert fp.attention(q.float(), k.float(), v.float()).dtype == torch.bfloat16
            cast = [t.bfloat16().requires_grad_() for t in (q, k, v)]  # as a projection under autocast leaves them
            fp.attention(*cast)
            so_far = len(looked)
            fp.attention(*cast)
            assert len(looked) == so_far, "under autocast a call is looked at anew"
        grad = q.clone().requires_grad_()
        assert fp.attention(grad, k, v).requires_grad

    def thread(seed):
        for turn in range(20):
            q = draw(1, 2, 5, 16, dtype=torch.float16, seed=100 * seed + turn)
            expect_o(fp.attention(q, q, q), exact(q, q, q)[0])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(thread, range(4)))


def test_a_training_step_like_one_before():
    with counted_looks() as looked:
        dtypes = TYPES[1:] if on_gpu() else TYPES
        for turn in range(3):  # interleaved, each time with other numbers at other addresses
            for dtype in dtypes:
                q, k, v = (draw(2, 4, S, 32, dtype=dtype, seed=10 * turn + i) for i, S in enumerate((9, 13, 13)))
                rows = q.transpose(1, 2).contiguous().transpose(1, 2)  # the same numbers, heads inside rows
                for like, causal in ((q, None), (q, "bottom-right"), (rows, None)):
                    leaves = [t.detach().requires_grad_() for t in (like, k, v)]
                    twins = [t.detach().double().requires_grad_() for t in leaves]
                    o, lse = fp.attention(*leaves, causal, with_lse=True)
                    want_o, want_lse = exact(*twins, causal)
                    expect_o(o, want_o.detach())
                    expect_lse(lse, want_lse.detach())
                    do = draw(*o.shape, dtype=dtype, seed=10 * turn + 7)
                    inside = do.transpose(1, 2).contiguous().transpose(1, 2)
                    dlse = draw(*lse.shape, seed=10 * turn + 8)
                    want = torch.autograd.grad(want_o, twins, do.double(), retain_graph=True)
                    and_lse = torch.autograd.grad((want_o, want_lse), twins, (do.double(), dlse.double()))
                    for wanted, *given in ((want, o, do), (want, o, inside), (and_lse, (o, lse), (do, dlse))):
                        got = torch.autograd.grad(given[0], leaves, given[1], retain_graph=True)
                        for name, a, b in zip("qkv", got, wanted):
                            expect_gradient("d" + name, a, b, dtype)
                        assert all(a.stride() == t.stride() for a, t in zip(got, leaves)), "gradients lie otherwise"
        assert len(looked) == 3 * len(dtypes), "looked at anew, or others' calls taken for one's own"


def test_no_rows_and_no_keys():
    q = draw(1, 2, 3, 16, grad=True)
    k = draw(1, 2, 0, 16, grad=True)
    o, lse = fp.attention(q, k, k, with_lse=True)
    assert (o == 0).all() and (lse == -torch.inf).all()
    o.sum().backward()
    assert (q.grad == 0).all() and k.grad.shape == k.shape
    assert fp.attention(q[:0], q[:0], q[:0]).shape == (0, 2, 3, 16)


def test_dropout():
    """By its seed; what is left stands for all; without a seed torch's generator draws one."""
    q, k, v = (draw(1, 2, 40, 64, dtype=usual(), seed=s, grad=True) for s in range(3))
    one, same, other = (fp.attention(q, k, v, dropout=0.3, seed=s) for s in (5, 5, 6))
    assert torch.equal(one, same) and not torch.equal(one, other)
    ones = torch.ones_like(v)
    mean = torch.stack([fp.attention(q, k, ones, dropout=0.3, seed=s).mean() for s in range(40)]).mean()
    assert abs(mean.item() - 1) < 0.02, mean
    torch.manual_seed(1)
    drawn = fp.attention(q, k, v, dropout=0.3)
    torch.manual_seed(1)
    assert torch.equal(drawn, fp.attention(q, k, v, dropout=0.3))
    # The gradient with respect to v is linear in P: what P was left in the forward pass is seen in it.
    g = torch.autograd.grad(one.sum(), v)[0]
    ones = torch.eye(40, 64, device=DEVICE, dtype=usual()).expand(1, 2, 40, 64)
    weights = fp.attention(q, k, ones, dropout=0.3, seed=5)[..., :40]
    want = weights.float().sum(2)[..., None].expand_as(g)
    assert torch.allclose(g.float(), want, atol=4e-3 if on_gpu() else 1e-5)


# ---- What torch asks of an op ---------------------------------------------------------------------------------------


def test_gradcheck():
    # The library calculates in fp32: wide steps, bars to match; the comparison with fp64 above is the sharper test.
    q, k, v = (draw(1, 2, 5, 4, seed=s, grad=True) for s in range(3))
    bias, sinks = draw(1, 1, 5, 5, seed=3, grad=True), draw(2, seed=4, grad=True)

    def f(q, k, v, bias, sinks):
        return fp.attention(q, k, v, "top-left", with_lse=True, bias=bias, sinks=sinks, softcap=2.0)
    if on_gpu():
        def f(q, k, v, *_):  # noqa: F811
            return fp.attention(q, k, v, "top-left", with_lse=True, deterministic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inputs that are not in double precision
        assert torch.autograd.gradcheck(f, (q, k, v, bias, sinks)[:3 if on_gpu() else 5], eps=1e-2, atol=2e-3,
                                        rtol=2e-3, nondet_tol=0)


def op_inputs(dtype, grad, full):
    q, k, v = (draw(1, 2, 8, 16, dtype=dtype, seed=s, grad=grad) for s in range(3))
    extra = [draw(1, 2, 8, 8, dtype=dtype, seed=4, grad=grad), draw(2, seed=5, grad=grad),
             torch.ones(8, 8, dtype=torch.bool, device=DEVICE)] if full else [None] * 3
    return (q, k, v, *extra, *[None] * 8, None, 1, 0, 0, 0, 0.25, 0.0, 0.0, 0, grad, False, False, "attention")


def test_opcheck():
    for dtype in (torch.float32, torch.bfloat16):
        for grad in (False, True):
            for full in (False,) if on_gpu() else (False, True):
                inputs = op_inputs(dtype, grad, full)
                torch.library.opcheck(torch.ops.flashphases.forward, inputs)
        with torch.no_grad():
            q, k, v, bias, sinks, *others = (t.detach() if isinstance(t, torch.Tensor) else t
                                             for t in op_inputs(dtype, False, not on_gpu()))
            results = fp.forward(q, k, v, bias, sinks, *others[:-4], True, *others[-3:])
            for wanted in (False,) if on_gpu() else (False, True):
                torch.library.opcheck(
                    torch.ops.flashphases.backward,
                    (torch.ones_like(results[0]), torch.zeros_like(results[1]), q, k, v, *results, bias, sinks,
                     *others[:10], *others[10:17], False, wanted, wanted, "attention"))


def test_compile():
    backends = ["aot_eager", "inductor"] if os.environ.get("FLASH_INDUCTOR", "1") == "1" else ["aot_eager"]
    for backend, dynamic in [(b, d) for b in backends for d in (False, True)]:
        torch._dynamo.reset()

        def f(q, k, v):
            return torch.sin(fp.attention(q * 2, k, v, "top-left")) + 1
        q, k, v = (draw(1, 2, 12, 16, seed=s, grad=True) for s in range(3))
        compiled = torch.compile(f, fullgraph=True, dynamic=dynamic, backend=backend)
        a, b = f(q, k, v), compiled(q, k, v)
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-6)
        for x, y in zip(torch.autograd.grad(a.sum(), (q, k, v)), torch.autograd.grad(b.sum(), (q, k, v))):
            assert torch.allclose(x, y, rtol=1e-5, atol=1e-6)
        with torch.no_grad():
            assert torch.allclose(f(q, k, v), compiled(q, k, v), rtol=1e-6, atol=1e-6)


def test_compile_of_the_drop_ins():
    for f in (lambda q: fp.scaled_dot_product_attention(q, q, q, is_causal=True),
              lambda q: fa.flash_attn_func(q, q, q, causal=True)):
        torch._dynamo.reset()
        q = draw(1, 4, 6, 16, grad=True)
        assert torch.allclose(torch.compile(f, fullgraph=True, backend="aot_eager")(q), f(q), atol=1e-6)


def test_export():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return fp.attention(q, k, v, "bottom-right")
    q, k, v = draw(1, 2, 6, 16), draw(1, 2, 9, 16, seed=1), draw(1, 2, 9, 16, seed=2)
    program = torch.export.export(Model(), (q, k, v))
    assert any("flashphases" in str(node.target) for node in program.graph.nodes)
    assert torch.equal(program.module()(q, k, v), Model()(q, k, v))


def test_who_watches_sees_the_op():
    """The way past torch's dispatcher is for those whom nobody watches."""
    from torch.utils._python_dispatch import TorchDispatchMode
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))
    q = draw(1, 1, 2, 8)
    with torch.no_grad(), Watch():
        fp.attention(q, q, q)
    assert any("flashphases.forward" in name for name in seen), seen
    seen.clear()
    q.requires_grad_()
    with Watch():
        fp.attention(q, q, q).sum().backward()
    assert all(any(f"flashphases.{op}" in name for name in seen) for op in ("forward", "backward")), seen


def test_autocast():
    q, k, v = (draw(1, 2, 9, 16, seed=s, grad=True) for s in range(3))
    with torch.autocast(DEVICE, torch.bfloat16):
        o = fp.attention(q, k, v)
        dropped_in = fp.scaled_dot_product_attention(q, k, v)
    assert o.dtype == torch.bfloat16 and dropped_in.dtype == torch.bfloat16
    o.float().sum().backward()
    assert q.grad.dtype == torch.float32


def test_second_gradient_is_refused_by_name():
    q = draw(1, 1, 3, 8, grad=True)
    first = torch.autograd.grad(fp.attention(q, q, q).square().sum(), q, create_graph=True)[0]
    with refused(NotImplementedError, "flashphases", "create_graph=True", "expected first gradients"):
        torch.autograd.grad(first.sum(), q)


def test_checkpoint_and_distributed_data_parallel():
    from torch.utils.checkpoint import checkpoint
    q = draw(1, 2, 12, 16, dtype=usual(), grad=True)

    def f(q):
        return fp.attention(q, q, q, "top-left", dropout=0.2)
    torch.manual_seed(3)
    plain = torch.autograd.grad(f(q).sum(), q)[0]
    torch.manual_seed(3)
    assert torch.equal(plain, torch.autograd.grad(checkpoint(f, q, use_reentrant=False).sum(), q)[0])

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(32, 96)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(2, (3, 4, 8)).unbind(2)
            return fa.flash_attn_func(q, k, v, causal=True).flatten(2)
    block, x = Block().to(DEVICE), draw(2, 7, 32)
    want = torch.autograd.grad(block(x).sum(), block.parameters())
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("nccl" if on_gpu() else "gloo", init_method=f"file://{folder}/at",
                                             rank=0, world_size=1)
        try:
            torch.nn.parallel.DistributedDataParallel(block)(x).sum().backward()
        finally:
            torch.distributed.destroy_process_group()
    for p, g in zip(block.parameters(), want):
        assert torch.allclose(p.grad, g, atol=1e-6)


def train(rank, folder, wrap, attends, results):
    """Of a process of two: five steps of a small module, whose parameters then go to results[rank]."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/{wrap}-{attends}", rank=rank,
                                         world_size=2)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            sdpa = (fp if attends == "ours" else torch.nn.functional).scaled_dot_product_attention
            return self.out(sdpa(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
    torch.manual_seed(0)
    block = Block()
    if wrap == "DDP":
        whole = torch.nn.parallel.DistributedDataParallel(block)
    else:
        from torch.distributed.fsdp import fully_shard
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        whole = fully_shard(block, mesh=mesh)
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.5)
    for step in range(5):
        x = draw(3, 9, 32, seed=2 * step + rank)  # each process has numbers of its own
        optimizer.zero_grad()
        (whole(x) - x.roll(1, 1)).square().mean().backward()
        optimizer.step()
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in block.parameters()]
    torch.save([p.detach() for p in full], f"{results}/{wrap}-{attends}-{rank}")
    torch.distributed.destroy_process_group()


def test_two_processes_train_as_with_torchs_own():
    if on_gpu():
        raise NotRun("two processes of a CPU")
    wraps = ["DDP"]
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
        wraps.append("FSDP")
    except ImportError:
        print("    FSDP left out: torch", torch.__version__, "has no fully_shard for a CPU")
    with tempfile.TemporaryDirectory() as folder:
        for wrap in wraps:
            for attends in ("ours", "torch's"):
                torch.multiprocessing.spawn(train, (folder, wrap, attends, folder), nprocs=2)
            ours, torchs, others = (torch.load(f"{folder}/{wrap}-{name}", weights_only=True)
                                    for name in ("ours-0", "torch's-0", "ours-1"))
            torch.manual_seed(0)
            begin = torch.nn.Linear(32, 96).weight
            assert not torch.allclose(ours[0], begin, atol=1e-3), "it has learned nothing"
            for a, b, other in zip(ours, torchs, others):
                assert torch.equal(a, other), f"{wrap}: the processes differ"
                assert torch.allclose(a, b, atol=1e-6, rtol=1e-5), f"{wrap}: {(a - b).abs().max()}"


def test_an_autograd_function_of_ones_own():
    """As courses have it: [batch, rows, D], and LSE among what forward has saved."""
    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, is_causal=False):
            ctx.causal = "top-left" if is_causal else None
            o, lse = fp.attention(*(t.unsqueeze(1) for t in (q, k, v)), ctx.causal, with_lse=True)
            ctx.save_for_backward(q, k, v, o.squeeze(1), lse.squeeze(1))
            return o.squeeze(1)

        @staticmethod
        def backward(ctx, dout):
            return *(t.squeeze(1) for t in fp.gradients(*(t.unsqueeze(1) for t in (*ctx.saved_tensors, dout)),
                                                        causal=ctx.causal)), None

    for causal in (False, True):
        q, k, v = (draw(4, 128, 64, seed=n, grad=True) for n in range(3))
        dout = draw(4, 128, 64, seed=3)
        o = Attention.apply(q, k, v, causal)
        four = [t.detach().double().unsqueeze(1).requires_grad_() for t in (q, k, v)]
        want, want_lse = exact(*four, "top-left" if causal else None)
        saved = [t for t in o.grad_fn.saved_tensors if t.shape == (4, 128)]
        assert len(saved) == 1
        expect_lse(saved[0], want_lse[:, 0])
        expect_o(o, want[:, 0])
        o.backward(dout)
        wanted = torch.autograd.grad(want, four, dout.double().unsqueeze(1))
        for name, t, exactly in zip(("dq", "dk", "dv"), (q, k, v), wanted):
            expect_gradient(name, t.grad, exactly[:, 0], t.dtype)
    four = [t.detach().unsqueeze(1) for t in (q, k, v, o, dout)]
    with refused(ValueError, "lse's shape is [4, 1, 127]; expected [4, 1, 128]"):
        fp.gradients(*four[:4], want_lse[..., :127].float(), four[4])
    with refused(ValueError, "lse's type is torch.float64; expected torch.float32"):
        fp.gradients(*four[:4], want_lse, four[4])


# ---- Drop-ins -------------------------------------------------------------------------------------------------------


def test_sdpa_as_torch_has_it():
    def torchs(q, k, v, enable_gqa=False, **options):  # before 2.5 torch had no grouped heads
        if enable_gqa and k.dim() > 2:
            k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    q, k, v = draw(2, 4, 9, 16), draw(2, 2, 11, 16, seed=1), draw(2, 2, 11, 24, seed=2)
    cases = [((q, k, v), dict(enable_gqa=True)), ((q, k, v), dict(enable_gqa=True, is_causal=True)),
             ((q, k, v), dict(enable_gqa=True, scale=0.3)),
             ((q[0], k[0], v[0]), dict(enable_gqa=True)), ((q[0, 0], k[0, 0], v[0, 0]), {}),
             ((q[:, :2].unflatten(0, (2, 1)), k.unflatten(0, (2, 1)), v.unflatten(0, (2, 1))), {}),
             ((q[:, 0], k[:, 0], v[:, 0]), dict(is_causal=True))]
    for shape in ((9, 11), (1, 11), (9, 1), (4, 9, 11), (2, 1, 9, 11), (2, 4, 9, 11), (1, 4, 1, 11), (1, 1, 1, 1)):
        for attn_mask in (draw(*shape, seed=3), draw(*shape, seed=4) < 1):
            cases.append(((q, k, v), dict(enable_gqa=True, attn_mask=attn_mask)))
    for (a, b, c), options in cases:
        if on_gpu():
            if "attn_mask" in options or options.get("enable_gqa") or c.shape[-1] != a.shape[-1]:
                continue
        want = torch.nan_to_num(torchs(a, b, c, **options))  # before 2.5 a row without keys was NaN
        got = fp.scaled_dot_product_attention(a, b, c, **options)
        assert got.shape == want.shape, (got.shape, want.shape)
        assert torch.allclose(got, want, atol=2e-6), (list(a.shape), options)


def test_sdpa_samples_of_torch():
    """The samples by which torch tests its own function, and their gradients."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise NotRun(error) from None
    op = next(op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention")
    ran = refusals = 0
    for dtype in TYPES:
        for sample in op.sample_inputs(DEVICE, dtype, requires_grad=True):
            options = dict(sample.kwargs)
            if options.get("dropout_p", 0.0) or (sample.args[2:] and sample.args[2] is not None and on_gpu()):
                options["dropout_p"] = 0.0  # which numbers are left out is everybody's own
            tensors = [sample.input, *sample.args]
            leaves = [t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad]
            def twin(t):
                is_real = isinstance(t, torch.Tensor) and t.is_floating_point()
                return t.detach().double().requires_grad_(t.requires_grad) if is_real else t
            twins, twin_options = [twin(t) for t in tensors], {name: twin(t) for name, t in options.items()}
            try:
                ours = fp.scaled_dot_product_attention(*tensors, **options)
                got = torch.autograd.grad(ours.sum(), leaves)
            except NotImplementedError as error:
                assert on_gpu(), error
                refusals += 1
                continue
            torchs = torch.nn.functional.scaled_dot_product_attention(*twins, **twin_options)
            want = torch.autograd.grad(torchs.sum(), [t for t in twins if isinstance(t, torch.Tensor) and
                                                      t.requires_grad])
            assert ours.shape == torchs.shape
            expect_o(ours, torchs.detach(), 2)
            # Elements are up to 9, so a row is nearly one key's: what is left of its gradient are differences of
            # numbers as large as v's.
            size = torch.linalg.norm(twins[2]).item() * torch.linalg.norm(twins[1]).item() * 2**-24
            for a, b in zip(got, want):
                error = torch.linalg.norm(a.double() - b).item()
                floor = torch.linalg.norm(b.to(dtype).double() - b).item()
                bar = 2e-5 * torch.linalg.norm(b).item() + size if dtype == torch.float32 else 4 * floor + size
                assert error <= bar, (list(sample.input.shape), options, dtype, error, bar)
            ran += 1
    print(f"    {ran} samples, {refusals} refused")
    assert ran >= 20


def test_sdpa_within_a_context():
    attend = torch.nn.MultiheadAttention(32, 4, batch_first=True).to(DEVICE)
    x = draw(2, 7, 32)
    torchs = torch.nn.functional.scaled_dot_product_attention
    want = attend(x, x, x, need_weights=False)[0]
    with fp.sdpa():
        assert torch.nn.functional.scaled_dot_product_attention is fp.scaled_dot_product_attention
        assert torch.allclose(attend(x, x, x, need_weights=False)[0], want, atol=1e-5)
    assert torch.nn.functional.scaled_dot_product_attention is torchs
    wide = draw(1, 1, 2, 300)
    with fp.sdpa(fallback=True):
        assert torch.allclose(torch.nn.functional.scaled_dot_product_attention(wide, wide, wide),
                              torchs(wide, wide, wide))
    with refused(ValueError, "query's head dimension D is 300; expected 1 to 256"), fp.sdpa():
        torch.nn.functional.scaled_dot_product_attention(wide, wide, wide)
    assert torch.nn.functional.scaled_dot_product_attention is torchs


def test_flash_attn_func():
    q, k, v = draw(2, 5, 4, 16), draw(2, 9, 2, 16, seed=1), draw(2, 9, 2, 16, seed=2)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], device=DEVICE)
    for options, same in (({}, {}), (dict(causal=True), dict(causal="bottom-right")),
                          (dict(softmax_scale=0.1), dict(scale=0.1)),
                          (dict(window_size=(2, 1)), dict(window=(2, 1), align="bottom-right")),
                          (dict(window_size=(2, -1), causal=True), dict(window=(2, 0), causal="bottom-right")),
                          (dict(window_size=(-1, 1)), dict(window=(None, 1), align="bottom-right")),
                          (dict(window_size=(-1, 0), causal=True), dict(causal="bottom-right")),
                          (dict(softcap=3.0), dict(softcap=3.0)), (dict(alibi_slopes=slopes), dict(slopes=slopes))):
        want, want_lse = exact(*(t.transpose(1, 2) for t in (q, k, v)), **same)
        try:
            o, lse, none = fa.flash_attn_func(q, k, v, return_attn_probs=True, **options)
        except NotImplementedError as error:
            assert on_gpu(), error
            continue
        assert none is None and o.is_contiguous()
        expect_o(o.transpose(1, 2), want)
        expect_lse(lse, want_lse)
        packed = fa.flash_attn_kvpacked_func(q, torch.stack([k, v], 2), **options)
        assert torch.equal(packed, o)
    qkv = draw(2, 6, 3, 4, 16)
    assert torch.equal(fa.flash_attn_qkvpacked_func(qkv, causal=True), fa.flash_attn_func(*qkv.unbind(2), causal=True))


def test_flash_attn_varlen_func():
    rows, keys, dtype = [4, 0, 7], [9, 3, 7], usual()
    q, k, v = (draw(sum(n), h, 16, dtype=dtype, seed=s, grad=True)
               for s, (n, h) in enumerate([(rows, 4), (keys, 2), (keys, 2)]))
    cu_q, cu_k = (torch.tensor([0, *torch.tensor(n).cumsum(0)], dtype=torch.int32).to(DEVICE) for n in (rows, keys))
    o, lse, _ = fa.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 7, 9, causal=True, return_attn_probs=True)
    do = draw(*o.shape, dtype=dtype, seed=4)
    got = torch.autograd.grad(o, (q, k, v), do)
    want = [torch.zeros_like(t).double() for t in (q, k, v)]
    for n in range(3):
        at, at_k = slice(cu_q[n], cu_q[n + 1]), slice(cu_k[n], cu_k[n + 1])
        parts = [t[i].detach().double().transpose(0, 1)[None].requires_grad_()
                 for t, i in ((q, at), (k, at_k), (v, at_k))]
        want_o, want_lse = exact(*parts, causal="bottom-right")
        if rows[n]:
            expect_o(o[at].transpose(0, 1)[None], want_o.detach())
            expect_lse(lse[:, at][None], want_lse.detach())
            for t, i, g in zip(want, (at, at_k, at_k), torch.autograd.grad(
                    want_o, parts, do[at].transpose(0, 1)[None].double())):
                t[i] = g[0].transpose(0, 1)
    for name, a, b in zip("qkv", got, want):
        expect_gradient("d" + name, a, b, dtype)
    kv, qkv = torch.stack([k, v], 1), draw(11, 3, 4, 16, dtype=dtype)
    assert torch.equal(fa.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, 7, 9, causal=True), o)
    assert torch.equal(fa.flash_attn_varlen_qkvpacked_func(qkv, cu_q, 7),
                       fa.flash_attn_varlen_func(*qkv.unbind(1), cu_q, cu_q, 7, 7))
    with refused(NotImplementedError, "block_table is given"):
        fa.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 7, 9, block_table=cu_q)


def test_flash_attn_with_kvcache():
    B, cache, H, Hk, D, dtype = 3, 12, 4, 2, 16, usual()
    for entries in (None, torch.tensor([4, 0, 2], dtype=torch.int32, device=DEVICE)):
        lines = 5 if entries is not None else B
        k_cache, v_cache = (draw(5, cache, Hk, D, dtype=dtype, seed=s)[:lines].clone() for s in (0, 1))
        used = torch.tensor([5, 0, 10], dtype=torch.int32, device=DEVICE)
        q, k, v = (draw(B, 2, h, D, dtype=dtype, seed=s) for h, s in ((H, 2), (Hk, 3), (Hk, 4)))
        want_k, want_v = k_cache.clone(), v_cache.clone()
        for b in range(B):
            entry = b if entries is None else entries[b]
            want_k[entry, used[b]:used[b] + 2], want_v[entry, used[b]:used[b] + 2] = k[b], v[b]
        o, lse = fa.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=used, cache_batch_idx=entries,
                                            causal=True, return_softmax_lse=True)
        assert torch.equal(k_cache, want_k) and torch.equal(v_cache, want_v)
        pick = slice(None) if entries is None else entries.long()
        want, want_lse = exact(q.transpose(1, 2), want_k[pick].transpose(1, 2), want_v[pick].transpose(1, 2),
                               causal="bottom-right", seqused_k=used + 2)
        expect_o(o.transpose(1, 2), want)
        expect_lse(lse, want_lse)
    whole = fa.flash_attn_with_kvcache(q, k_cache[:B], v_cache[:B], cache_seqlens=7)
    expect_o(whole.transpose(1, 2), exact(q.transpose(1, 2), k_cache[:B, :7].transpose(1, 2),
                                          v_cache[:B, :7].transpose(1, 2))[0])
    if not on_gpu():  # there nobody waits for the numbers, and torch's own assertion ends the process
        with refused(ValueError, "cache_seqlens is [11, 0, 3]", "at most 10"):
            fa.flash_attn_with_kvcache(q, k_cache[:B], v_cache[:B], k, v,
                                       cache_seqlens=torch.tensor([11, 0, 3], dtype=torch.int32))
    for name in ("block_table", "rotary_cos", "cache_leftpad"):
        with refused(NotImplementedError, f"{name} is given; expected None"):
            fa.flash_attn_with_kvcache(q, k_cache, v_cache, **{name: torch.zeros(1)})


# ---- Refusals, in torch's words -------------------------------------------------------------------------------------


def test_refusals():
    q, k = draw(1, 4, 3, 16, dtype=usual()), draw(1, 2, 3, 16, dtype=usual())
    sdpa = fp.scaled_dot_product_attention
    with refused(ValueError, "query's type is torch.float64; expected float32, float16 or bfloat16"):
        sdpa(q.double(), q.double(), q.double())
    with refused(ValueError, "key's type is torch.bfloat16"):
        sdpa(q, q.bfloat16(), q)
    with refused(ValueError, "number of heads of query, key, value is [4, 2, 2]", "enable_gqa=True"):
        sdpa(q, k, k)
    with refused(ValueError, "number of heads of k is 2; expected a divisor of 3, q's"):
        fp.attention(q[:, :3], k, k)
    with refused(ValueError, "attn_mask is given; expected None beside is_causal=True"):
        sdpa(q, q, q, attn_mask=torch.ones(3, 3, dtype=torch.bool, device=DEVICE), is_causal=True)
    with refused(ValueError, "attn_mask's shape is [5, 3]"):
        sdpa(q, q, q, attn_mask=torch.ones(5, 3, dtype=torch.bool, device=DEVICE))
    with refused(ValueError, "attn_mask's type is torch.int32"):
        sdpa(q, q, q, attn_mask=torch.ones(3, 3, dtype=torch.int32, device=DEVICE))
    with refused(ValueError, "dropout_p is 1"):
        sdpa(q, q, q, dropout_p=1.0)
    with refused(ValueError, "softcap is -1"):
        fa.flash_attn_func(q, q, q, softcap=-1.0)
    with refused(NotImplementedError, "the device is meta; expected a CUDA device or the CPU"):
        fp._call("flashphases_forward", None, torch.device("meta"), "attention", ())
    with refused(ValueError, "causal is 'left'"):
        fp.attention(q, q, q, "left")
    with refused(ValueError, "k's device is meta; expected cpu" if not on_gpu() else "k's device is meta"):
        fp.attention(q, q.to("meta"), q)
    with refused((ValueError, NotImplementedError), "phase"):
        fp.attention(q, q, q, phase=4)


def test_phases_are_listed():
    names = {phase.number: phase.name.decode() for phase in flashphases.phases()}
    assert names[-1] == "definition" and names[8] == "08-lse" and len(names) > 20


def main():
    global DEVICE
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--installed", action="store_true", help="the package that is installed, not the sources'")
    parser.add_argument("names", nargs="*", help="tests whose name has one of these words")
    options = parser.parse_args()
    DEVICE = options.device
    if on_gpu() and not torch.cuda.is_available():
        print("skipped: no GPU")
        sys.exit(SKIPPED)
    torch.set_num_threads(min(torch.get_num_threads(), 2))
    print("libflashphases", flashphases.library.flashphases_version().decode(), "torch", torch.__version__, DEVICE)
    failed = ran = left_out = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or options.names and not any(word in name for word in options.names):
            continue
        ran += 1
        try:
            test()
            print("passed", name, flush=True)
        except NotRun as reason:
            left_out += 1
            print("NOT RUN", name, "-", reason, flush=True)
        except Exception as error:  # the others are told, too
            failed += 1
            import traceback
            traceback.print_exc()
            print("FAILED", name, "-", type(error).__name__, error, flush=True)
    print(f"{ran - failed - left_out} of {ran} passed, {left_out} not run")
    sys.exit(1 if failed or ran == left_out else 0)


if __name__ == "__main__":
    main()
