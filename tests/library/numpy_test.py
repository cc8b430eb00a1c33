"""numpy_test.py: the package flashphases with NumPy arrays, on the CPU: results and gradients against fp64, strides as
they are; arrays that come by DLPack, as JAX's do (phases/library/dlpack.py).
    FLASHPHASES_LIBRARY=…/libflashphases.so python3 tests/library/numpy_test.py
Exits with 77 and its reason where NumPy is absent.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "phases/library"))
try:
    import numpy as np
except ImportError:
    print("skipped: no NumPy in", sys.executable)
    sys.exit(77)

import flashphases  # noqa: E402
import flashphases.numpy as fnp  # noqa: E402


def exact(q, k, v, sees, bias=0.0):
    """o, LSE and P of as many heads in double precision."""
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    s = np.where(sees, q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]) + bias, -np.inf)
    top = s.max(3, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(3, keepdims=True)
    return p / total @ v, (top + np.log(total))[..., 0], p / total


def relative(got, want):
    return np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)


def main():
    random = np.random.default_rng(0)
    for dtype in (np.float32, np.float16):
        # [B, S, H, D] in memory, D contiguous.
        q, k, v = (random.standard_normal((2, n, 3, 16)).astype(dtype).transpose(0, 2, 1, 3) for n in (9, 12, 12))
        sees = np.tril(np.ones((9, 12), bool), 3)
        o, lse = flashphases.attention(q, k, v, causal="bottom-right", with_lse=True)
        want, want_lse, p = exact(q, k, v, sees)
        bar = 2e-6 if dtype == np.float32 else 1.5 * relative(want.astype(dtype), want) + 2**-24
        assert o.dtype == dtype and relative(o, want) <= bar, relative(o, want)
        assert abs(lse - want_lse).max() <= 2e-6 * max(1, abs(want_lse).max())

    # Gradients: O = P V, S's = P (dP - delta).
    q, k, v = (random.standard_normal((2, 3, n, 16)).astype(np.float32) for n in (9, 12, 12))
    dout, bias = random.standard_normal(q.shape).astype(np.float32), random.standard_normal((9, 12)).astype(np.float32)
    o, lse = fnp.attention(q, k, v, bias=bias, with_lse=True)
    grads = fnp.gradients(q, k, v, o, lse, dout, bias=bias)
    _, _, p = exact(q, k, v, True, bias)
    d = p * (dout.astype(np.float64) @ v.swapaxes(2, 3) - (dout * o.astype(np.float64)).sum(3, keepdims=True))
    want = {"dq": d @ k / 4, "dk": d.swapaxes(2, 3) @ q / 4, "dv": p.swapaxes(2, 3) @ dout, "dbias": d.sum((0, 1))}
    assert set(grads) == set(want)
    for name, exact_gradient in want.items():
        assert relative(grads[name], exact_gradient) <= 5e-6, (name, relative(grads[name], exact_gradient))

    for words, call in (("q's shape with its strides", lambda: fnp.attention(q[..., ::2], k[..., ::2], v)),
                        ("q's type is float64; expected", lambda: fnp.attention(*(t.astype(float) for t in (q, k, v)))),
                        ("k's number of heads H is 2; expected a divisor of 3",
                         lambda: fnp.attention(q, k[:, :2], v[:, :2]))):
        try:
            call()
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"taken; expected '{words}'")

    # What has __dlpack__: NumPy's own arrays have it, too.
    sys.path.insert(0, str(ROOT / "phases/library"))
    import dlpack
    assert np.array_equal(dlpack.attention(q, k, v, np.from_dlpack, causal="top-left"),
                          fnp.attention(q, k, v, causal="top-left"))
    print("NumPy", np.__version__, "passed")


if __name__ == "__main__":
    main()
