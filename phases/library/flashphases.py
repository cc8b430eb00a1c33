"""flashphases.py: libflashphases from PyTorch and NumPy, by ctypes: pointers and strides, torch's current stream.
Forward only: there is no backward pass, so tensors that want gradients are refused. example.c is the same in C.
Use: o = flashphases.attention(q, k, v, causal="top-left")      As a program it checks itself against PyTorch.
"""

import ctypes
import os
import sys

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
MASKS = {None: 0, "top-left": 1, "bottom-right": 2}
GPU, CPU = 0, 1
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
                ("v", Tensor), ("o", Tensor), ("lse", ctypes.c_void_p),
                ("machine", ctypes.c_int32), ("threads", ctypes.c_int32), ("Hk", ctypes.c_int64),
                ("Dv", ctypes.c_int64), ("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64),
                ("wide_output", ctypes.c_int32), ("softcap", ctypes.c_float), ("dropout", ctypes.c_float),
                ("dropout_seed", ctypes.c_uint64), ("slopes", Tensor), ("bias", Tensor), ("bool_mask", Tensor),
                ("doc_q", Tensor), ("doc_k", Tensor), ("block_mask", Tensor), ("sinks", ctypes.c_void_p),
                ("N", ctypes.c_int64), ("cu_seqlens_q", ctypes.c_void_p), ("cu_seqlens_k", ctypes.c_void_p),
                ("seqused_q", ctypes.c_void_p), ("seqused_k", ctypes.c_void_p)]


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


def layout(t):
    """Address, shape, strides in elements and type of a torch tensor or a NumPy array."""
    if hasattr(t, "data_ptr"):
        return t.data_ptr(), tuple(t.shape), tuple(t.stride()), str(t.dtype).replace("torch.", "")
    return t.ctypes.data, t.shape, tuple(s // t.itemsize for s in t.strides), t.dtype.name


def refuse(name, value, expected):
    raise ValueError(f"{name} is {value}; expected {expected}")


def tensor(name, t, types):
    """[B, H, S, D] with D contiguous."""
    data, shape, strides, dtype = layout(t)
    if len(shape) != 4 or shape[3] > 1 and strides[3] != 1:
        refuse(f"{name}'s shape with its strides", f"{list(shape)}, {list(strides)}", "[B, H, S, D] with D contiguous")
    if dtype not in types:
        refuse(f"{name}'s type", dtype, " or ".join(types))
    return Tensor(data, *strides[:3])


def shared(name, t, axes, types, most_shared=3):
    """An array whose first axes may be 1 or left out: all share what is there. `axes`: its sizes, None for no axis."""
    if t is None:
        return Tensor()
    data, shape, strides, dtype = layout(t)
    if dtype not in types:
        refuse(f"{name}'s type", dtype, " or ".join(types))
    wanted = [n for n in axes if n is not None]
    if len(shape) > len(wanted):
        refuse(f"{name}'s shape", list(shape), wanted)
    missing = len(wanted) - len(shape)
    shape, strides = (1,) * missing + tuple(shape), (0,) * missing + tuple(strides)
    if any(n != want and not (n == 1 and axis < most_shared) for axis, (n, want) in enumerate(zip(shape, wanted))):
        refuse(f"{name}'s shape", list(shape), f"{wanted}, of which the first {most_shared} may be 1")
    if shape[-1] > 1 and strides[-1] != 1:
        refuse(f"{name}'s last stride", strides[-1], 1)
    own = iter(zip(shape, strides))
    step = [0, 0, 0, 0]
    for axis, want in enumerate(axes):
        if want is not None:
            n, stride = next(own)
            step[axis] = stride if n > 1 or axis >= most_shared else 0
    return Tensor(data, *step[:3])


def numbers(name, t, count, dtype):
    """So many numbers, one behind the other."""
    if t is None:
        return None
    data, shape, strides, is_dtype = layout(t)
    if is_dtype != dtype or shape != (count,) or count > 1 and strides != (1,):
        refuse(name, f"{is_dtype} {list(shape)}", f"{dtype} [{count}], dense")
    return data


def mask_of(causal, window, align):
    """The mask's number and the window's bounds: keys to the left and to the right, both included, None for all."""
    for name, value in (("causal", causal), ("align", align)):
        if value not in MASKS:
            refuse(name, repr(value), f"one of {list(MASKS)}")
    if window is None:
        return MASKS[causal], 0, 0
    if (causal is None) == (align is None):
        refuse("align", repr(align), "the diagonal's name beside window, where causal does not name it")
    left, right = (-1 if bound is None else bound for bound in window)
    return MASKS[causal or align] + 2, left, 0 if causal else right


def forward_args(q, k, v, o, lse=None, causal=None, scale=None, phase=0, machine=GPU, threads=0, window=None,
                 align=None, softcap=0.0, slopes=None, bias=None, mask=None, doc_q=None, doc_k=None, block_mask=None,
                 sinks=None, cu_seqlens_q=None, cu_seqlens_k=None, seqused_q=None, seqused_k=None, dropout=0.0,
                 seed=0):
    """The call's arguments for tensors [B, H, S, D] of one type in one memory; lse: [B, H, Sq] float32 or None."""
    dtype = layout(q)[3]
    views = {name: tensor(name, t, [dtype] if dtype in TYPES and name != "o" else [*TYPES])
             for name, t in {"q": q, "k": k, "v": v, "o": o}.items()}
    o_dtype = layout(o)[3]
    if o_dtype not in (dtype, "float32"):
        refuse("o's type", o_dtype, f"{dtype} or float32")
    (B, H, Sq, D), (_, Hk, Sk, _), Dv = q.shape, k.shape, v.shape[3]
    if tuple(k.shape) != (B, Hk, Sk, D) or tuple(v.shape) != (B, Hk, Sk, Dv) or tuple(o.shape) != (B, H, Sq, Dv):
        refuse("shapes of q, k, v, o", [list(t.shape) for t in (q, k, v, o)],
               "[B, H, Sq, D], [B, Hk, Sk, D], [B, Hk, Sk, Dv], [B, H, Sq, Dv]")
    number, left, right = mask_of(causal, window, align)
    N = layout(cu_seqlens_q)[1][0] - 1 if cu_seqlens_q is not None else 0
    sequences = N if cu_seqlens_q is not None else B
    return ForwardArgs(
        struct_size=ctypes.sizeof(ForwardArgs), phase=phase, type=TYPES[dtype], mask=number,
        has_scale=scale is not None, scale=scale or 0.0, B=B, H=H, Sq=Sq, Sk=Sk, D=D, **views,
        lse=numbers_of_rows(lse, (B, H, Sq)), machine=machine, threads=threads, Hk=Hk, Dv=Dv,
        window_left=left, window_right=right, wide_output=o_dtype != dtype, softcap=softcap, dropout=dropout,
        dropout_seed=seed, slopes=shared("slopes", slopes, (B, H, None, None), ["float32"], 1),
        bias=shared("bias", bias, (B, H, Sq, Sk), [dtype]), bool_mask=shared("mask", mask, (B, H, Sq, Sk), ["bool"]),
        doc_q=shared("doc_q", doc_q, (B, None, Sq, None), ["int32"], 1),
        doc_k=shared("doc_k", doc_k, (B, None, Sk, None), ["int32"], 1),
        block_mask=shared("block_mask", block_mask, (B, H, -(-Sq // 64), -(-Sk // 64)), ["uint8"], 2),
        sinks=numbers("sinks", sinks, H, "float32"), N=N,
        cu_seqlens_q=numbers("cu_seqlens_q", cu_seqlens_q, N + 1, "int32"),
        cu_seqlens_k=numbers("cu_seqlens_k", cu_seqlens_k, N + 1, "int32"),
        seqused_q=numbers("seqused_q", seqused_q, sequences, "int32"),
        seqused_k=numbers("seqused_k", seqused_k, sequences, "int32"))


def numbers_of_rows(lse, shape):
    if lse is None:
        return None
    data, is_shape, _, dtype = layout(lse)
    if is_shape != shape or dtype != "float32":
        refuse("lse", f"{dtype} {list(is_shape)}", f"float32 {list(shape)}")
    return data


def attention(q, k, v, causal=None, scale=None, with_lse=False, phase=0, **features):
    """softmax(q k^T * scale) v for [B, H, S, D] tensors: o, or (o, lse). On a GPU on torch's current stream, by a
    phase; torch tensors of the CPU and NumPy arrays on the CPU, by the definition.

    causal: None, "top-left" (torch's is_causal) or "bottom-right"; phase: 0 for the fastest, or a phase's number.
    features: forward_args names them, docs/conventions.md says what they mean.
    """
    if not hasattr(q, "data_ptr"):
        import numpy
        o = numpy.empty((*q.shape[:3], v.shape[3]), q.dtype)
        lse = numpy.empty(q.shape[:3], numpy.float32) if with_lse else None
        args = forward_args(q, k, v, o, lse, causal, scale, phase, CPU, **features)
        check(library.flashphases_forward(args, None, 0, None))
        return (o, lse) if with_lse else o
    import torch
    if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
        raise ValueError("q, k or v wants a gradient; expected none: there is no backward pass; use torch.no_grad()")
    arrays = [t for t in (q, k, v, *features.values()) if isinstance(t, torch.Tensor)]
    if any(t.device != q.device for t in arrays) or q.device.type not in ("cuda", "cpu"):
        raise ValueError(f"devices are {[str(t.device) for t in arrays]}; expected one GPU, or the CPU; move them")
    o = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) if with_lse else None
    args = forward_args(q, k, v, o, lse, causal, scale, phase, CPU if q.device.type == "cpu" else GPU, **features)
    if q.device.type == "cpu":
        check(library.flashphases_forward(args, None, 0, None))
        return (o, lse) if with_lse else o
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
