"""flashphases.py: libflashphases from PyTorch, by ctypes: tensors' pointers and strides, torch's current stream.
Forward only: there is no backward pass, so tensors that want gradients are refused. example.c is the same in C.
Use: o = flashphases.attention(q, k, v, causal="top-left")      As a program it checks itself against PyTorch.
"""

import ctypes
import os
import sys

TYPES = {"torch.float32": 0, "torch.float16": 1, "torch.bfloat16": 2}
MASKS = {None: 0, "top-left": 1, "bottom-right": 2}
NO_GPU = 2


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride_b", ctypes.c_int64), ("stride_h", ctypes.c_int64),
                ("stride_s", ctypes.c_int64)]


class ForwardArgs(ctypes.Structure):
    """flashphases_forward_args of flashphases.h, field by field."""
    _fields_ = [("struct_size", ctypes.c_uint32), ("phase", ctypes.c_int32), ("type", ctypes.c_int32),
                ("mask", ctypes.c_int32), ("has_scale", ctypes.c_int32), ("scale", ctypes.c_float),
                ("block_q", ctypes.c_int32), ("block_k", ctypes.c_int32), ("B", ctypes.c_int64), ("H", ctypes.c_int64),
                ("Sq", ctypes.c_int64), ("Sk", ctypes.c_int64), ("D", ctypes.c_int64), ("q", Tensor), ("k", Tensor),
                ("v", Tensor), ("o", Tensor), ("lse", ctypes.c_void_p)]


class Error(RuntimeError):
    """A call was refused or failed; `status` is its enum flashphases_status."""

    def __init__(self, status):
        super().__init__(library.flashphases_error().decode())
        self.status = status


# FLASHPHASES_LIBRARY in the environment, else where the loader looks.
library = ctypes.CDLL(os.environ.get("FLASHPHASES_LIBRARY", "libflashphases.so.0.1"))
library.flashphases_error.restype = library.flashphases_version.restype = ctypes.c_char_p
library.flashphases_forward.argtypes = [ctypes.POINTER(ForwardArgs), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
library.flashphases_workspace.argtypes = [ctypes.POINTER(ForwardArgs), ctypes.POINTER(ctypes.c_size_t)]
library.flashphases_chosen_phase.argtypes = [ctypes.POINTER(ForwardArgs), ctypes.POINTER(ctypes.c_int32)]


def check(status):
    if status != 0:
        raise Error(status)


def forward_args(q, k, v, o, lse=None, causal=None, scale=None, phase=0):
    """The call's arguments for torch tensors [B, H, S, D] of one type on one GPU; lse: [B, H, Sq] float32 or None."""
    if not q.dtype == k.dtype == v.dtype == o.dtype or str(q.dtype) not in TYPES:
        raise ValueError(f"types are {q.dtype}, {k.dtype}, {v.dtype}, {o.dtype}; expected one of {list(TYPES)} for all")
    if causal not in MASKS:
        raise ValueError(f"causal is {causal!r}; expected one of {list(MASKS)}")
    for name, tensor in {"q": q, "k": k, "v": v, "o": o}.items():
        if tensor.dim() != 4 or tensor.shape[3] > 1 and tensor.stride(3) != 1:
            raise ValueError(f"{name} has shape {list(tensor.shape)} and strides {tensor.stride()}; "
                             "expected [B, H, S, D] with D contiguous")
    if not (q.shape == o.shape and k.shape == v.shape and q.shape[:2] == k.shape[:2] and q.shape[3] == k.shape[3]):
        raise ValueError(f"q, k, v, o have shapes {[list(t.shape) for t in (q, k, v, o)]}; expected q's and o's equal, "
                         "k's and v's equal, and one B, H and D")

    def tensor(t):
        return Tensor(t.data_ptr(), t.stride(0), t.stride(1), t.stride(2))

    return ForwardArgs(struct_size=ctypes.sizeof(ForwardArgs), phase=phase, type=TYPES[str(q.dtype)],
                       mask=MASKS[causal], has_scale=scale is not None, scale=scale or 0.0, B=q.shape[0], H=q.shape[1],
                       Sq=q.shape[2], Sk=k.shape[2], D=q.shape[3], q=tensor(q), k=tensor(k), v=tensor(v), o=tensor(o),
                       lse=lse.data_ptr() if lse is not None else None)


def attention(q, k, v, causal=None, scale=None, with_lse=False, phase=0):
    """softmax(q k^T * scale) v for [B, H, S, D] tensors on a GPU, on torch's current stream: o, or (o, lse).

    causal: None, "top-left" (torch's is_causal) or "bottom-right"; phase: 0 for the fastest, or a phase's number.
    """
    import torch
    if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
        raise ValueError("q, k or v wants a gradient; expected none: there is no backward pass; use torch.no_grad()")
    if not q.device == k.device == v.device or q.device.type != "cuda":
        raise ValueError(f"devices are {q.device}, {k.device}, {v.device}; expected one GPU; move the tensors")
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) if with_lse else None
    args = forward_args(q, k, v, o, lse, causal, scale, phase)
    with torch.cuda.device(q.device):
        bytes_wanted = ctypes.c_size_t()
        check(library.flashphases_workspace(args, bytes_wanted))
        workspace = torch.zeros(bytes_wanted.value, dtype=torch.uint8, device=q.device)
        check(library.flashphases_forward(args, workspace.data_ptr(), bytes_wanted.value,
                                          torch.cuda.current_stream().cuda_stream))
    return (o, lse) if with_lse else o


def chosen_phase(args):
    phase = ctypes.c_int32()
    check(library.flashphases_chosen_phase(args, phase))
    return phase.value


def check_against_torch(torch):
    """Strided tensors, masks and a stream that is not the default one."""
    torch.manual_seed(0)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for causal in (None, "top-left"):
            # [B, S, H, D] in memory, as a projection leaves them.
            q, k, v = (torch.randn(2, 300, 4, 64, device="cuda", dtype=dtype).transpose(1, 2) for _ in range(3))
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                o, lse = attention(q, k, v, causal=causal, scale=0.2, with_lse=True)
            torch.cuda.current_stream().wait_stream(stream)
            scores = q.double() @ k.double().transpose(2, 3) * 0.2
            if causal:
                scores += torch.full_like(scores, -torch.inf).triu(1)
            exact = torch.softmax(scores, 3) @ v.double()
            error = (torch.linalg.norm(o.double() - exact) / torch.linalg.norm(exact)).item()
            floor = (torch.linalg.norm(exact.to(dtype).double() - exact) / torch.linalg.norm(exact)).item()
            exact_lse = torch.logsumexp(scores, 3)
            off = ((lse.double() - exact_lse).abs() / exact_lse.abs().clamp(min=1)).max().item()
            bar = 2e-6 if dtype == torch.float32 else 1.5 * floor + 2**-24
            print(f"{dtype}, causal {causal}, phase {chosen_phase(forward_args(q, k, v, o, lse, causal, 0.2))}: "
                  f"relative error {error:.2e} (bar {bar:.2e}), LSE off by {off:.1e}")
            # LSE: 2e-6, and what tensor cores' roundings towards zero add at this size (docs/conventions.md).
            if not (error <= bar and off <= 6e-6):
                sys.exit("the result is wrong")


def main():
    print("libflashphases", library.flashphases_version().decode())
    # The library reads the fields where Python wrote them.
    refused = ForwardArgs(struct_size=ctypes.sizeof(ForwardArgs), B=1, H=1, Sq=0, Sk=-7, D=64)
    try:
        check(library.flashphases_workspace(refused, ctypes.c_size_t()))
        sys.exit("a negative length was taken")
    except Error as error:
        if str(error) != "K's sequence length S is -7; expected 0 or more; correct the shape":
            sys.exit(f"a negative length was refused as: {error}")
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("skipped: no PyTorch with a GPU")
        sys.exit(77)
    check_against_torch(torch)


if __name__ == "__main__":
    main()
