# passes.py: passes of phases on PyTorch's tensors, by libflash-passes.so (passes.cpp), as training runs them: a forward
# pass that keeps what the backward pass needs, and that one; every array by its name in operands.hpp.
# cmake --build build --target flash-passes; run = Passes(path).launch(24, True, {"Q": q, …}, causal=True); run()
import ctypes
import pathlib

MOST_PIECES = 8  # of workspace, as Stream in phase.hpp has them
TYPES = {"torch.float32": 0, "torch.float16": 1, "torch.bfloat16": 2}
PHASES = pathlib.Path(__file__).resolve().parents[2] / "phases"


def name_of(number):
    """Of its folder."""
    return next(folder.name for folder in PHASES.iterdir() if folder.name.startswith(f"{number:02}-"))


class Passes:
    """The library at `path`."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.flash_pass_arrays.restype = self.library.flash_pass_error.restype = ctypes.c_char_p
        names = self.arrays = self.library.flash_pass_arrays().decode().split()

        class Request(ctypes.Structure):
            """As in passes.cpp, field by field."""
            _fields_ = [(name, ctypes.c_int32) for name in
                        ("phase", "backward", "type", "causal", "atomic", "block_q", "block_k")]
            _fields_ += [(name, ctypes.c_int64) for name in ("B", "H", "Sq", "Sk", "D")]
            _fields_ += [("arrays", ctypes.c_void_p * len(names))]

        self.Request = Request

    def launch(self, phase, backward, tensors, causal=False, atomic=False, blocks=(0, 0)):
        """A function that enqueues the pass on torch's current stream. tensors: dense ones, by name; those that are
        missing are not given. Its workspace is allocated here, and is poison where it need not be 0."""
        import torch

        q, k = tensors["Q"], tensors["K"]
        for name, tensor in tensors.items():
            if not tensor.is_contiguous():
                raise ValueError(f"{name} has strides {tensor.stride()}; expected a dense tensor; copy it")
        request = self.Request(phase=phase, backward=backward, type=TYPES[str(q.dtype)], causal=causal, atomic=atomic,
                               block_q=blocks[0], block_k=blocks[1], B=q.shape[0], H=q.shape[1], Sq=q.shape[2],
                               Sk=k.shape[2], D=q.shape[3])
        for name, tensor in tensors.items():
            request.arrays[self.arrays.index(name)] = tensor.data_ptr()
        counts, zeroed = (ctypes.c_int64 * MOST_PIECES)(), (ctypes.c_int32 * MOST_PIECES)()
        pieces = self.library.flash_pass_workspace(ctypes.byref(request), counts, zeroed)
        self.check(pieces)
        workspace = [torch.full((counts[i] // 4,), 0.0 if zeroed[i] else torch.nan, device=q.device)
                     for i in range(pieces)]
        pointers = (ctypes.c_void_p * MOST_PIECES)(*(piece.data_ptr() for piece in workspace))

        def run():
            self.check(self.library.flash_pass_enqueue(ctypes.byref(request), pointers,
                                                       ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))

        run.workspace_bytes = sum(counts[i] for i in range(pieces))
        run.keep = (tensors, workspace)
        return run

    def check(self, status):
        if status < 0:
            raise RuntimeError(self.library.flash_pass_error().decode())


class Training:
    """Forward and backward pass of a phase on given q, k, v and dO, with all that they write and keep."""

    def __init__(self, passes, phase, q, k, v, dout, causal=False, atomic=True, kept=True, blocks=(0, 0)):
        """kept: m, l and O's low bits go from one pass to the other; otherwise LSE alone, as libraries have it."""
        import torch

        def rows():
            return torch.full(q.shape[:3], torch.nan, device=q.device)

        self.o, self.dq, self.dk, self.dv = (torch.full_like(x, torch.nan) for x in (q, q, k, v))
        self.lse = rows()
        arrays = {"Q": q, "K": k, "V": v, "O": self.o, "LSE": self.lse}
        if kept:
            arrays |= {"m": rows(), "l": rows()}
            if q.dtype != torch.float32:
                arrays["O_lo"] = torch.full(q.shape, 0x5a5a, dtype=torch.int16, device=q.device)
        self.forward = passes.launch(phase, False, arrays, causal)
        arrays = arrays | {"dO": dout, "dQ": self.dq, "dK": self.dk, "dV": self.dv}
        self.backward = passes.launch(phase, True, arrays, causal, atomic, blocks)

    def __call__(self):
        self.forward()
        self.backward()

    def gradients(self):
        return self.dq, self.dk, self.dv
