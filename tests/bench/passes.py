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
            _fields_ = [("phase", ctypes.c_char * 8)]
            _fields_ += [(name, ctypes.c_int32) for name in
                         ("backward", "type", "out", "bottom_right", "atomic", "block_q", "block_k")]
            _fields_ += [("left", ctypes.c_int64), ("right", ctypes.c_int64)]
            _fields_ += [("softcap", ctypes.c_float), ("dropout", ctypes.c_float), ("seed", ctypes.c_uint64)]
            _fields_ += [(name, ctypes.c_int64 * 4 * len(names)) for name in ("shapes", "strides")]
            _fields_ += [("arrays", ctypes.c_void_p * len(names))]

        self.Request = Request

    def launch(self, phase, backward, tensors, causal=False, atomic=False, blocks=(0, 0), left=-1, right=-1,
               bottom_right=False, softcap=0, dropout=0, seed=0):
        """A function that enqueues the pass on torch's current stream. phase: 24, or "25m". tensors: by the names of
        operands.hpp, with four axes, or with three where the last one would be 1; those that are missing are not given.
        Its workspace is allocated here, and is poison where it need not be 0."""
        import torch

        q = tensors["Q"]
        types = TYPES[str(q.dtype)], TYPES[str(tensors["O"].dtype)]
        request = self.Request(phase=str(phase).encode(), backward=backward, type=types[0], out=types[1],
                               bottom_right=bottom_right, atomic=atomic, block_q=blocks[0], block_k=blocks[1],
                               left=left, right=0 if causal else right, softcap=softcap, dropout=dropout, seed=seed)
        for name, tensor in tensors.items():
            i, whole = self.arrays.index(name), tensor if tensor.dim() == 4 else tensor[..., None]
            request.arrays[i] = whole.data_ptr()
            request.shapes[i][:], request.strides[i][:] = whole.shape, whole.stride()
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
    """Forward and backward pass of a phase on given Q, K, V and dO, with all that they write and keep."""

    def __init__(self, passes, phase, q, k, v, dout, causal=False, atomic=True, kept=True, blocks=(0, 0), more=(),
                 **options):
        """kept: m, l and O's low bits go from one pass to the other; otherwise LSE alone, as libraries have it. more:
        other arrays that both passes read, by name; options: those of launch."""
        import torch

        def rows():
            return torch.full(q.shape[:3], torch.nan, device=q.device)

        self.o, self.dq, self.dk, self.dv = (torch.full_like(x, torch.nan) for x in (dout, q, k, v))
        self.lse = rows()
        arrays = dict(more) | {"Q": q, "K": k, "V": v, "O": self.o, "LSE": self.lse}
        if kept:
            arrays |= {"m": rows(), "l": rows()}
            if q.dtype != torch.float32:
                arrays["O_lo"] = torch.full(self.o.shape, 0x5a5a, dtype=torch.int16, device=q.device)
        self.forward = passes.launch(phase, False, arrays, causal, **options)
        arrays = arrays | {"dO": dout, "dQ": self.dq, "dK": self.dk, "dV": self.dv}
        self.backward = passes.launch(phase, True, arrays, causal, atomic, blocks, **options)

    def __call__(self):
        self.forward()
        self.backward()

    def gradients(self):
        return self.dq, self.dk, self.dv
