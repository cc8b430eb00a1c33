"""_abi.py: flashphases.h by ctypes: structs field by field, a call for each function, refusals as exceptions.
Whatever has torch's data_ptr() or NumPy's ctypes is an array here; neither package is imported.
Use: check(library().flashphases_forward(forward_args(q, k, v, o, lse, machine=CPU), None, 0, None))
"""

import ctypes
import os
import pathlib
import re
from ctypes import POINTER, c_char, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
MASKS = {None: 0, "top-left": 1, "bottom-right": 2}
GPU, CPU, SIM, CHECKED = range(4)
DEFINITION = -1  # as a phase's number
BAD_ARGUMENT, NO_GPU, FINDING = 1, 2, 5
CAN = ("causal", "window", "lse", "keep", "wide output", "hk", "dv", "lengths", "softcap", "slopes", "bias", "mask",
       "documents", "block mask", "sinks", "dropout", "any stride", "atomic",
       "spare multiprocessors")  # bits of Pass.can


class Tensor(ctypes.Structure):
    """flashphases_tensor, and flashphases_input."""
    _fields_ = [("data", c_void_p), ("stride_b", c_int64), ("stride_h", c_int64), ("stride_s", c_int64)]


class ForwardArgs(ctypes.Structure):
    """flashphases_forward_args of flashphases.h, field by field."""
    _fields_ = [("struct_size", c_uint32), ("phase", c_int32), ("type", c_int32), ("mask", c_int32),
                ("has_scale", c_int32), ("scale", c_float), ("block_q", c_int32), ("block_k", c_int32), ("B", c_int64),
                ("H", c_int64), ("Sq", c_int64), ("Sk", c_int64), ("D", c_int64), ("q", Tensor), ("k", Tensor),
                ("v", Tensor), ("o", Tensor), ("lse", c_void_p),
                ("machine", c_int32), ("threads", c_int32), ("Hk", c_int64), ("Dv", c_int64),
                ("window_left", c_int64), ("window_right", c_int64),
                ("wide_output", c_int32), ("softcap", c_float), ("dropout", c_float),
                ("dropout_seed", c_uint64), ("slopes", Tensor), ("bias", Tensor), ("bool_mask", Tensor),
                ("doc_q", Tensor), ("doc_k", Tensor), ("block_mask", Tensor), ("sinks", c_void_p),
                ("N", c_int64), ("cu_seqlens_q", c_void_p), ("cu_seqlens_k", c_void_p),
                ("seqused_q", c_void_p), ("seqused_k", c_void_p),
                ("mask_shift", c_int64), ("spare_multiprocessors", c_int32), ("workspace_is_zero", c_int32),
                ("m", c_void_p), ("l", c_void_p), ("o_lo", Tensor)]


class BackwardArgs(ctypes.Structure):
    """flashphases_backward_args of flashphases.h."""
    _fields_ = [("struct_size", c_uint32), ("phase", c_int32), ("mode", c_int32), ("block_q", c_int32),
                ("block_k", c_int32), ("workspace_is_zero", c_int32), ("forward", POINTER(ForwardArgs)),
                ("dout", Tensor), ("dlse", c_void_p), ("dq", Tensor), ("dk", Tensor), ("dv", Tensor),
                ("dbias", Tensor), ("dsinks", c_void_p)]


class Pass(ctypes.Structure):
    """flashphases_pass of flashphases.h."""
    _fields_ = [("types", c_uint32), ("can", c_uint32), ("largest_D", c_int32), ("capability", c_int32),
                ("this_capability_alone", c_int32)]


class Phase(ctypes.Structure):
    """flashphases_phase of flashphases.h."""
    _fields_ = [("struct_size", c_uint32), ("number", c_int32), ("next", c_int32), ("name", c_char * 32),
                ("forward", Pass), ("backward", Pass)]


class Error(RuntimeError):
    """A call failed, or was refused; `status` is its enum flashphases_status."""
    status = 0


class Refused(Error, ValueError):
    """An argument's value is wrong."""


class Finding(Error):
    """The checked simulator has found something in a kernel: its whole text."""


class Unsupported(Error, NotImplementedError):
    """What was asked for no phase, or not the phase that was asked for, can do here."""


_library = None
_machines = {"cpu": CPU, "sim": SIM, "checked": CHECKED}


def _host_machine():
    """What computes arrays of the host: FLASHPHASES_MACHINE in the environment when this package is imported. cpu, the
    definition, if it is not set; sim: a phase's kernel on the simulator; checked: there with every access checked."""
    name = os.environ.get("FLASHPHASES_MACHINE") or "cpu"
    if name not in _machines:
        raise Refused(f"FLASHPHASES_MACHINE is {name!r}; expected one of {', '.join(_machines)}")
    return _machines[name]


def library():
    """Loaded at the first call: FLASHPHASES_LIBRARY in the environment, else the file beside this one, else where the
    loader looks."""
    global _library
    if _library is None:
        file, loaders = (("libflashphases.so", "libflashphases.so.0.1") if HOST == CPU else
                         ("libflashphases-simulated.so",) * 2)
        beside = pathlib.Path(__file__).with_name(file)
        name = os.environ.get("FLASHPHASES_LIBRARY") or (str(beside) if beside.exists() else loaders)
        loaded = ctypes.CDLL(name)
        loaded.flashphases_error.restype = loaded.flashphases_version.restype = ctypes.c_char_p
        version = loaded.flashphases_version().decode()
        if not version.startswith("0.2."):
            raise Error(f"{name} is version {version}; expected 0.2, this package's; install them together")
        for prefix, args in (("flashphases", ForwardArgs), ("flashphases_backward", BackwardArgs)):
            getattr(loaded, prefix + "_workspace").argtypes = [POINTER(args), POINTER(c_size_t)]
            getattr(loaded, prefix + "_chosen_phase").argtypes = [POINTER(args), POINTER(c_int32)]
        loaded.flashphases_forward.argtypes = [POINTER(ForwardArgs), c_void_p, c_size_t, c_void_p]
        loaded.flashphases_backward.argtypes = [POINTER(BackwardArgs), c_void_p, c_size_t, c_void_p]
        loaded.flashphases_phase_info.argtypes = [c_int32, POINTER(Phase)]
        _library = loaded
    return _library


HOST = _host_machine()

# The library's names of arguments: as this package has them, and as the functions have them that it stands in for.
NAMES = {
    "attention": {"Q": "q", "K": "k", "V": "v", "O": "o", "LSE": "lse"},
    "sdpa": {"Q": "query", "K": "key", "V": "value", "bias": "attn_mask", "mask": "attn_mask", "causal": "is_causal",
             "dropout": "dropout_p"},
    "flash_attn": {"Q": "q", "K": "k", "V": "v", "scale": "softmax_scale", "dropout": "dropout_p",
                   "window": "window_size", "slopes": "alibi_slopes"},
}


def check(status, names="attention"):
    """Raises what a call has said, in the words of the function that was called."""
    if status == 0:
        return
    text = library().flashphases_error().decode()
    first = re.match(r"\w+", text)
    if first and first[0] in NAMES[names]:
        text = NAMES[names][first[0]] + text[first.end():]
    unsupported = status == NO_GPU or any(
        words in text for words in ("choose a phase", "choose another phase", "convert Q, K and V"))
    error = (Finding if status == FINDING else Error if status not in (BAD_ARGUMENT, NO_GPU) else
             Unsupported if unsupported else Refused)(text)
    error.status = status
    raise error


def refuse(name, value, expected):
    raise Refused(f"{name} is {value}; expected {expected}")


# ---- Arrays ---------------------------------------------------------------------------------------------------------


def layout(t):
    """Address, shape, strides in elements and type of a torch tensor or a NumPy array."""
    if hasattr(t, "data_ptr"):
        return t.data_ptr(), tuple(t.shape), tuple(t.stride()), str(t.dtype).replace("torch.", "")
    return t.ctypes.data, t.shape, tuple(s // t.itemsize for s in t.strides), t.dtype.name


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


def numbers(name, t, shape, dtype):
    """So many numbers, one behind the other."""
    if t is None:
        return None
    data, is_shape, strides, is_dtype = layout(t)
    dense, step = [], 1
    for n in reversed(shape):
        dense.insert(0, step)
        step *= n
    sizes_fit = is_shape == tuple(shape) and all(
        n <= 1 or stride == want for n, stride, want in zip(is_shape, strides, dense))
    if is_dtype != dtype or not sizes_fit:
        refuse(name, f"{is_dtype} {list(is_shape)}", f"{dtype} {list(shape)}, dense")
    return data


# ---- Arguments ------------------------------------------------------------------------------------------------------


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
                 seed=0, shift=0, spare_multiprocessors=0, m=None, l=None, o_lo=None):
    """The call's arguments for arrays [B, H, S, D] of one type in one memory; lse, m, l: [B, H, Sq] float32 or None;
    o_lo: int16, as o. They hold addresses alone: the arrays must outlive the call."""
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
    rows = (B, H, Sq)
    return ForwardArgs(
        struct_size=ctypes.sizeof(ForwardArgs), phase=phase, type=TYPES[dtype], mask=number,
        has_scale=scale is not None, scale=scale or 0.0, B=B, H=H, Sq=Sq, Sk=Sk, D=D, **views,
        lse=numbers("lse", lse, rows, "float32"), machine=machine, threads=threads, Hk=Hk, Dv=Dv,
        window_left=left, window_right=right, wide_output=o_dtype != dtype, softcap=softcap, dropout=dropout,
        dropout_seed=seed, slopes=shared("slopes", slopes, (B, H, None, None), ["float32"], 1),
        bias=shared("bias", bias, (B, H, Sq, Sk), [dtype]), bool_mask=shared("mask", mask, (B, H, Sq, Sk), ["bool"]),
        doc_q=shared("doc_q", doc_q, (B, None, Sq, None), ["int32"], 1),
        doc_k=shared("doc_k", doc_k, (B, None, Sk, None), ["int32"], 1),
        block_mask=shared("block_mask", block_mask, (B, H, -(-Sq // 64), -(-Sk // 64)), ["uint8"], 2),
        sinks=numbers("sinks", sinks, (H,), "float32"), N=N,
        cu_seqlens_q=numbers("cu_seqlens_q", cu_seqlens_q, (N + 1,), "int32"),
        cu_seqlens_k=numbers("cu_seqlens_k", cu_seqlens_k, (N + 1,), "int32"),
        seqused_q=numbers("seqused_q", seqused_q, (sequences,), "int32"),
        seqused_k=numbers("seqused_k", seqused_k, (sequences,), "int32"), mask_shift=shift,
        spare_multiprocessors=spare_multiprocessors, m=numbers("m", m, rows, "float32"),
        l=numbers("l", l, rows, "float32"), o_lo=Tensor() if o_lo is None else tensor("o_lo", o_lo, ["int16"]))


def backward_args(forward, dout, dq, dk, dv, dlse=None, dbias=None, dsinks=None, phase=0, atomic=False):
    """Of a forward call's arguments, after it. dout, dq, dk, dv: as o, q, k, v; dlse: as lse; dbias: float32, as bias,
    with as many axes; dsinks: float32 [H]."""
    f = forward
    dtype = next(name for name, number in TYPES.items() if number == f.type)
    for name, t, shape in (("dout", dout, (f.B, f.H, f.Sq, f.Dv)), ("dq", dq, (f.B, f.H, f.Sq, f.D)),
                           ("dk", dk, (f.B, f.Hk, f.Sk, f.D)), ("dv", dv, (f.B, f.Hk, f.Sk, f.Dv))):
        if tuple(t.shape) != shape:
            refuse(f"{name}'s shape", list(t.shape), list(shape))
    return BackwardArgs(
        struct_size=ctypes.sizeof(BackwardArgs), phase=phase, mode=atomic, forward=ctypes.pointer(forward),
        dout=tensor("dout", dout, [dtype]), dq=tensor("dq", dq, [dtype]), dk=tensor("dk", dk, [dtype]),
        dv=tensor("dv", dv, [dtype]), dlse=numbers("dlse", dlse, (f.B, f.H, f.Sq), "float32"),
        dbias=shared("dbias", dbias, (f.B, f.H, f.Sq, f.Sk), ["float32"]),
        dsinks=numbers("dsinks", dsinks, (f.H,), "float32"))


# ---- What phases can do ---------------------------------------------------------------------------------------------


def chosen_phase(args):
    """The number of the phase that these arguments, of either direction, are computed by."""
    phase = c_int32()
    prefix = "flashphases_backward" if isinstance(args, BackwardArgs) else "flashphases"
    check(getattr(library(), prefix + "_chosen_phase")(args, phase))
    return phase.value


def phases():
    """All phases as Phase structs, the definition first."""
    number = DEFINITION
    while number:
        phase = Phase(struct_size=ctypes.sizeof(Phase))
        check(library().flashphases_phase_info(number, phase))
        yield phase
        number = phase.next
