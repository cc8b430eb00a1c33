"""simulated_test.py: kernels from Python on the simulator: FLASHPHASES_MACHINE=checked, libflashphases-simulated.so.
Results and gradients of phases against the definition's, with no package at all, with NumPy and with PyTorch where they
are installed; and a kernel with a race raises the finding.
    python3 tests/library/simulated_test.py libflashphases-simulated.so libflashphases-broken.so
"""

import ctypes
import math
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SIMULATED, BROKEN = sys.argv[1:3]
os.environ["FLASHPHASES_LIBRARY"] = SIMULATED
os.environ["FLASHPHASES_MACHINE"] = os.environ.get("FLASHPHASES_MACHINE") or "checked"
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "phases/library")]
import flashphases  # noqa: E402
from flashphases import _abi  # noqa: E402
from python import Array, CTYPES, normal  # noqa: E402

CTYPES["float16"] = ctypes.c_uint16  # its bits
CTYPES["int16"] = ctypes.c_int16


def half(x):
    """x rounded to float16, and its bits."""
    import struct
    bits = struct.pack("<e", x)
    return struct.unpack("<e", bits)[0], struct.unpack("<H", bits)[0]


def pair(shape, seed):
    """The same numbers as float16 and float32."""
    draw = normal(seed)
    numbers = [half(draw(0)) for _ in range(math.prod(shape))]
    return Array(shape, lambda i: numbers[i][1], "float16"), Array(shape, lambda i: numbers[i][0])


def values(array):
    import struct
    if array.dtype == "torch.float16":
        return list(struct.unpack(f"<{len(array.values)}e", bytes(array.values)))
    return list(array.values)


def expect(name, got, want, floors, least):
    """Relative L2 error: so many times that of the exact result once rounded (docs/conventions.md)."""
    want = values(want)
    norm = math.sqrt(sum(x * x for x in want))
    error = math.sqrt(sum((a - b)**2 for a, b in zip(values(got), want))) / norm
    floor = math.sqrt(sum((half(x)[0] - x)**2 for x in want)) / norm
    print(f"{name}: {error:.2e}, its bar {floors * floor + least:.2e}")
    if not error <= floors * floor + least:
        sys.exit(f"{name} is wrong")


def call(machine, tensors, dout, phase, backward, dtype, **features):
    """o, lse, dq, dk, dv, all by one machine."""
    q, k, v = tensors
    dense = {"o": (*q.shape[:3], v.shape[3]), "dq": q.shape, "dk": k.shape, "dv": v.shape}
    out = {name: Array(shape, lambda _: 7, dtype) for name, shape in dense.items()}
    lse, m, l = (Array(q.shape[:3], lambda _: 7) for _ in range(3))
    o_lo = Array(dense["o"], lambda _: 7, "int16") if dtype == "float16" else None
    forward = flashphases.forward_args(q, k, v, out["o"], lse, machine=machine, phase=phase, m=m, l=l, o_lo=o_lo,
                                       **features)
    flashphases.check(flashphases.library.flashphases_forward(forward, None, 0, None))
    grads = flashphases.backward_args(forward, dout, out["dq"], out["dk"], out["dv"], phase=backward)
    flashphases.check(flashphases.library.flashphases_backward(grads, None, 0, None))
    return out, lse, (flashphases.chosen_phase(forward), flashphases.chosen_phase(grads))


def without_packages():
    phases = {phase.number: phase for phase in flashphases.phases()}
    cases = [(19, 24, 2, {"causal": "bottom-right"}), (25, 25, 1, {}),
             (26, 26, 2, {"window": (40, 7), "align": "bottom-right"}),
             (27, 27, 1, {"seqused_k": Array((2,), lambda n: 90 - 50 * n, "int32")}), (0, 0, 2, {"causal": "top-left"})]
    for phase, backward, Hk, features in cases:
        shapes = [(2, 2, 70, 64), (2, Hk, 90, 64), (2, Hk, 90, 64), (2, 2, 70, 64)]
        halves, floats = zip(*(pair(shape, 10 * phase + n) for n, shape in enumerate(shapes)))
        try:
            got, lse, chosen = call(_abi.HOST, halves[:3], halves[3], phase, backward, "float16", **features)
        except flashphases.Refused as error:
            if "one that this library holds for the simulator" not in str(error):
                raise
            print("left out:", error)  # FLASHPHASES_SIMULATED names others
            continue
        want, want_lse, _ = call(flashphases.CPU, floats[:3], floats[3], 0, 0, "float32", **features)
        assert phase == 0 or chosen == (phase, backward), chosen
        name = phases[chosen[0]].name.decode()
        expect(f"{name}: O", got["o"], want["o"], 1.5, 2**-24)
        off = max(abs(a - b) / max(1, abs(b)) for a, b in zip(lse.values, want_lse.values))
        assert off <= 6e-6, off
        for grad in ("dq", "dk", "dv"):
            expect(f"{name}: {grad}", got[grad], want[grad], 2, 2**-22)
    try:
        call(_abi.HOST, halves[:3], halves[3], 4, 0, "float16")
        sys.exit("phase 4, which has no kernel, was taken")
    except flashphases.Refused as error:
        assert str(error).startswith("phase is 4; expected 0 (the fastest measured) or one of"), error


def with_numpy(numpy):
    import flashphases.numpy as fnp
    q, k, v, dout = (numpy.random.default_rng(n).standard_normal((1, 2, 66, 64)).astype(numpy.float16)
                     for n in range(4))
    o, lse = fnp.attention(q, k, v, "top-left", with_lse=True, phase=19)
    wide = [t.astype(numpy.float32) for t in (q, k, v)]
    want = numpy.empty(q.shape, numpy.float32)
    flashphases.check(flashphases.library.flashphases_forward(
        flashphases.forward_args(*wide, want, causal="top-left", machine=flashphases.CPU), None, 0, None))

    def relative(got):
        return numpy.linalg.norm(got.astype(numpy.float64) - want) / numpy.linalg.norm(want)
    assert relative(o) <= 1.5 * relative(want.astype(numpy.float16)) + 2**-24, relative(o)
    assert set(fnp.gradients(q, k, v, o, lse, dout, causal="top-left")) == {"dq", "dk", "dv"}


def with_torch(torch):
    import flashphases.torch as fp

    def draw(n):
        return torch.randn(1, 2, 66, 64, generator=torch.Generator().manual_seed(n)).half().requires_grad_()
    q, k, v = draw(0), draw(1), draw(2)
    o = fp.attention(q, k, v, "top-left")
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    dout = draw(3).detach()
    for name, got, exact, floors in [
            ("o", o, want, 1.5), *zip(("dq", "dk", "dv"), torch.autograd.grad(o, (q, k, v), dout),
                                      torch.autograd.grad(want, (q, k, v), dout.double()), (2, 2, 2))]:
        def relative(t):
            return (torch.linalg.norm(t.double() - exact.double()) / torch.linalg.norm(exact.double())).item()
        # exact gradients come rounded to float16, so that a floor more is between them
        floor = relative(exact.half()) if name == "o" else 2**-12
        assert relative(got) <= (floors + (name != "o")) * floor + 2**-22, (name, relative(got))
    with torch.no_grad():
        assert torch.equal(fp.attention(q, k, v, "top-left"), fp.attention(q, k, v, "top-left"))


def broken():
    """In a process of its own: the library of this one holds no such kernel."""
    text = f"""
import sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parents[1] / "phases/library")!r}]
import flashphases, python
q = python.Array((1, 1, 16, 16), lambda i: 1)
args = flashphases.forward_args(q, q, q, q, machine=flashphases.CHECKED, phase=8)
try:
    flashphases.check(flashphases.library.flashphases_forward(args, None, 0, None))
except flashphases.Finding as error:
    assert error.status == 5
    print(error)
"""
    says = subprocess.run([sys.executable, "-c", text], env={**os.environ, "FLASHPHASES_LIBRARY": BROKEN}, text=True,
                          stdout=subprocess.PIPE).stdout
    for words in ("racing<float> has 1 finding: race: write after write of shared ",
                  "Mail+0 (4 bytes)\n  write  broken.cu:", "  block (0,0,0) warp 0 lane 1\n",
                  "\n  remedy: put __syncwarp() between the two\n"):
        if words not in says:
            sys.exit(f"the race was told as '{says}'; expected '{words}' in it")
    print("a race raises:", says.splitlines()[0])


def main():
    broken()
    without_packages()
    for package, test in (("numpy", with_numpy), ("torch", with_torch)):
        try:
            module = __import__(package)
        except ImportError:
            print(f"left out: no {package} in {sys.executable}")
            continue
        test(module)
        print(package, module.__version__, "passed")


if __name__ == "__main__":
    main()
