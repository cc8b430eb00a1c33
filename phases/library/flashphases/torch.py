"""torch.py: attention of torch tensors, with gradients: by a phase's kernel on torch's current stream where they are on
a GPU, by the definition where they are the CPU's. Nothing is built against torch: two torch.library ops over ctypes.
Use: o = attention(q, k, v, causal="top-left");  with sdpa(): model(x)    torch 2.4 or newer
"""

import contextlib
import ctypes
import math
import struct
from typing import Optional, Tuple

import torch
from torch import Tensor

from . import _abi

TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


# ---- What is checked before the library is asked: shapes and types that its struct cannot say -----------------------


def _check(names, q, k, v, **others):
    """q [B, H, Sq, D], k [B, Hk, Sk, D], v [B, Hk, Sk, Dv] of one type on one device, and the others on that device."""
    say = _abi.NAMES[names]
    all_three = {say["Q"]: q, say["K"]: k, say["V"]: v}
    for name, t in all_three.items():
        if t.dtype not in TYPES or t.dtype != q.dtype:
            _abi.refuse(f"{name}'s type", t.dtype, "float32, float16 or bfloat16, the same for all; convert it")
        if t.dim() != 4:
            _abi.refuse(f"{name}'s shape", list(t.shape), "four axes")
    fits = k.shape[0] == v.shape[0] == q.shape[0] and k.shape[1:3] == v.shape[1:3] and k.shape[3] == q.shape[3]
    if not fits:
        _abi.refuse(f"shapes of {', '.join(all_three)}", [list(t.shape) for t in all_three.values()],
                    "[B, H, Sq, D], [B, Hk, Sk, D], [B, Hk, Sk, Dv]")
    if k.shape[1] != q.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0):
        _abi.refuse(f"number of heads of {say['K']}", k.shape[1], f"a divisor of {q.shape[1]}, {say['Q']}'s")
    device = q.device
    for name, t in {**all_three, **others}.items():
        if t is not None and t.device != device:
            _abi.refuse(f"{name}'s device", t.device, f"{q.device}, {say['Q']}'s; move it")


def _readable(t):
    """D contiguous, as the library reads it; a copy where it is not."""
    return t if t.shape[3] <= 1 or t.stride(3) == 1 else t.contiguous()


def _like(t, width, dtype):
    """An empty [B, H, S, width] whose axes lie in memory as those of t: heads inside rows, or rows inside heads."""
    B, H, S, _ = t.shape
    if H > 1 and S > 1 and t.stride(1) < t.stride(2):
        return t.new_empty((B, S, H, width), dtype=dtype).transpose(1, 2)
    return t.new_empty((B, H, S, width), dtype=dtype)


def _results(q, v, keep, wide):
    """o, lse, m, l, o_lo; of what is not kept nothing."""
    o = _like(q, v.shape[3], torch.float32 if wide else q.dtype)
    rows, none = q.shape[:3], (0,)
    lse, m, l = (q.new_empty(shape, dtype=torch.float32) for shape in (rows, *[rows if keep else none] * 2))
    low = keep and o.dtype != torch.float32
    o_lo = _like(o, v.shape[3], torch.int16) if low else q.new_empty(none, dtype=torch.int16)
    return o, lse, m, l, o_lo


# ---- Calls ----------------------------------------------------------------------------------------------------------


def _tensor(t):
    return _abi.Tensor(t.data_ptr(), *t.stride()[:3])


def _arguments(q, k, v, o, lse, m, l, o_lo, bias, mask, slopes, sinks, doc_q, doc_k, block_mask, cu_seqlens_q,
               cu_seqlens_k, seqused_q, seqused_k, seed, kind, left, right, shift, scale, softcap, dropout, phase):
    """_abi.forward_args for torch, which has checked q, k and v: where nothing else is given, a third of its time."""
    (B, H, Sq, D), (_, Hk, Sk, _) = q.shape, k.shape
    a = _abi.ForwardArgs(
        ctypes.sizeof(_abi.ForwardArgs), phase, TYPES[q.dtype], kind, 1, scale, 0, 0, B, H, Sq, Sk, D, _tensor(q),
        _tensor(k), _tensor(v), _tensor(o), None if lse is None else lse.data_ptr(),
        _abi.GPU if q.is_cuda else _abi.HOST,
        1 if B * H * Sq * Sk < 1 << 16 else torch.get_num_threads(), Hk, v.shape[3], left, right, o.dtype != q.dtype,
        softcap, dropout)
    a.mask_shift = shift
    if m is not None and m.numel():
        a.m, a.l = m.data_ptr(), l.data_ptr()
    if o_lo is not None and o_lo.numel():
        a.o_lo = _tensor(o_lo)
    if dropout:
        a.dropout_seed = seed.item() & (1 << 64) - 1
    if bias is not None:
        a.bias = _abi.shared("bias", bias, (B, H, Sq, Sk), [str(q.dtype)[6:]])
    if mask is not None:
        a.bool_mask = _abi.shared("mask", mask, (B, H, Sq, Sk), ["bool"])
    if slopes is not None:
        a.slopes = _abi.shared("slopes", slopes, (B, H, None, None), ["float32"], 1)
    if sinks is not None:
        a.sinks = _abi.numbers("sinks", sinks, (H,), "float32")
    if doc_q is not None:
        a.doc_q = _abi.shared("doc_q", doc_q, (B, None, Sq, None), ["int32"], 1)
    if doc_k is not None:
        a.doc_k = _abi.shared("doc_k", doc_k, (B, None, Sk, None), ["int32"], 1)
    if block_mask is not None:
        a.block_mask = _abi.shared("block_mask", block_mask, (B, H, -(-Sq // 64), -(-Sk // 64)), ["uint8"], 2)
    sequences = B
    if cu_seqlens_q is not None:
        a.N = sequences = cu_seqlens_q.shape[0] - 1
        a.cu_seqlens_q = _abi.numbers("cu_seqlens_q", cu_seqlens_q, (sequences + 1,), "int32")
    if cu_seqlens_k is not None:
        a.cu_seqlens_k = _abi.numbers("cu_seqlens_k", cu_seqlens_k, (sequences + 1,), "int32")
    if seqused_q is not None:
        a.seqused_q = _abi.numbers("seqused_q", seqused_q, (sequences,), "int32")
    if seqused_k is not None:
        a.seqused_k = _abi.numbers("seqused_k", seqused_k, (sequences,), "int32")
    return a


def _mask(kind_of_args):
    """The bits of a struct that decide its workspace: of an address what a multiple of 16 lacks, of the seed
    nothing."""
    mask = 0
    for name, kind in kind_of_args._fields_:
        field = getattr(kind_of_args, name)
        address = kind in (_abi.Tensor, ctypes.c_void_p) or name == "forward"
        bits = 15 if address and name != "forward" else 0 if name in ("dropout_seed", "forward") else (1 << 64) - 1
        if kind is _abi.Tensor:
            bits |= (1 << 64 * 4) - (1 << 64)  # strides
        mask |= (bits & (1 << 8 * field.size) - 1) << 8 * field.offset
    return mask


_masks = {kind: _mask(kind) for kind in (_abi.ForwardArgs, _abi.BackwardArgs)}
_plans = {}  # bytes of workspace and the backward pass's mode by what decides them


def _key(args, given):
    return int.from_bytes(bytes(args), "little") & _masks[type(args)], given


def _call(prefix, args, device, names, given, forward=None):
    """On the CPU at once; on a GPU on torch's current stream of the device, with a workspace from torch. given: which
    of the arrays that may be left out are there. Returns the bytes of workspace."""
    library = _abi.library()
    call = getattr(library, prefix)
    if device.type == "cpu":
        _abi.check(call(args, None, 0, None), names)
        return 0
    if device.type != "cuda":
        raise _abi.Unsupported(f"the device is {device}; expected a CUDA device or the CPU; move the tensors")
    with _current(device):
        key = (device.index, _key(args, given), forward and _key(forward, None))
        plan = _plans.get(key)
        if plan is None:
            if len(_plans) >= 4096:
                _plans.clear()
            plan = _plans[key] = _workspace_and_mode(args, names, forward)
        bytes_wanted, mode = plan
        if forward:
            args.mode = mode
        workspace = torch.empty(bytes_wanted, dtype=torch.uint8, device=device) if bytes_wanted else None
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        _abi.check(call(args, workspace.data_ptr() if bytes_wanted else None, bytes_wanted, stream), names)
        return bytes_wanted


def _workspace_and_mode(args, names, forward):
    """Bytes of workspace on the current device, and of a backward pass the mode, which becomes the struct's."""
    wanted = getattr(_abi.library(), "flashphases_backward_workspace" if forward else "flashphases_workspace")
    bytes_wanted = ctypes.c_size_t()
    status = wanted(args, bytes_wanted)
    if status and forward and args.mode:  # what no phase adds atomically, one may add in order
        args.mode = 0
        status = wanted(args, bytes_wanted)
    _abi.check(status, names)
    return bytes_wanted.value, forward and args.mode


_nothing = contextlib.nullcontext()


def _current(device):
    """The context in which this GPU is the current one; it is nearly always."""
    return _nothing if torch._C._cuda_getDevice() == device.index else torch.cuda.device(device)


# ---- A call like one before: q, k and v alone -----------------------------------------------------------------------
# Python looks at tensors for longer than a launch takes. What is known of them but for their addresses is a key; to it
# belongs a call that was checked, and all that is done again is to allocate, to fill in addresses and to call.

# Four tensors, each an address before its strides, and one address more. In a forward struct q, k, v, o and lse stand
# in a row, in a backward struct dout, dlse, dq, dk, dv.
_ADDRESSES = struct.Struct("=17Q")
assert _abi.ForwardArgs.lse.offset == _abi.ForwardArgs.q.offset + 16 * 8
assert _abi.BackwardArgs.dv.offset == _abi.BackwardArgs.dout.offset + 13 * 8
_KEPT = struct.Struct("=6Q")  # m, l, o_lo and its strides, likewise
assert _abi.ForwardArgs.o_lo.offset == _abi.ForwardArgs.m.offset + 2 * 8
_prepared = {}


def _prepare(key, prepared):
    if len(_prepared) >= 4096:
        _prepared.clear()
    _prepared[key] = prepared


def _forward_args(known, strides, q, k, v, o, lse):
    """A forward struct like `known`, its bytes, of these tensors; other threads have theirs."""
    args = _abi.ForwardArgs.from_buffer_copy(known)
    of_q, of_k, of_v, of_o = strides
    _ADDRESSES.pack_into(args, _abi.ForwardArgs.q.offset, q.data_ptr(), *of_q, k.data_ptr(), *of_k, v.data_ptr(), *of_v,
                         o.data_ptr(), *of_o, 0 if lse is None else lse.data_ptr())
    return args


class _Prepared:
    """Without gradients."""

    def __init__(self, args, q, k, v, o, with_lse, workspace_bytes):
        args.workspace_is_zero = 0 < workspace_bytes <= 256
        self.args, self.with_lse, self.workspace_bytes = bytes(args), with_lse, workspace_bytes
        self.strides = [t.stride()[:3] for t in (q, k, v, o)]
        self.shape, self.o_strides, self.o_type = o.shape, o.stride(), o.dtype
        self.like_q = o.shape == q.shape and torch.empty_like(q).stride() == o.stride()  # the fastest way to o
        self.counters = {}  # by stream: a workspace that is 0, which each call leaves so

    def __call__(self, q, k, v, names):
        o = (torch.empty_like(q, dtype=self.o_type) if self.like_q else
             q.new_empty_strided(self.shape, self.o_strides, dtype=self.o_type))
        lse = q.new_empty(self.shape[:3], dtype=torch.float32) if self.with_lse else None
        args = _forward_args(self.args, self.strides, q, k, v, o, lse)
        if not q.is_cuda:
            _abi.check(_abi.library().flashphases_forward(args, None, 0, None), names)
            return o, lse
        with _current(q.device):
            stream = torch._C._cuda_getCurrentRawStream(q.get_device())
            workspace = self.workspace(stream, q.device, args)
            _abi.check(_abi.library().flashphases_forward(
                args, workspace.data_ptr() if self.workspace_bytes else None, self.workspace_bytes, stream), names)
        return o, lse

    def workspace(self, stream, device, args):
        """A few counters are kept, one set for each stream. Others are the call's own, and so are those of a captured
        graph, which may be replayed beside anything."""
        if args.workspace_is_zero:
            if not torch._C._cuda_isCurrentStreamCapturing():
                kept = self.counters.get(stream)
                if kept is None:
                    kept = self.counters[stream] = torch.zeros(self.workspace_bytes, dtype=torch.uint8, device=device)
                return kept
            args.workspace_is_zero = 0
        return torch.empty(self.workspace_bytes, dtype=torch.uint8, device=device) if self.workspace_bytes else None


class _Layout:
    """How to make a tensor like this one."""

    def __init__(self, t):
        self.shape, self.strides, self.dtype = t.shape, t.stride(), t.dtype

    def made(self, q):
        return q.new_empty_strided(self.shape, self.strides, dtype=self.dtype)


class _PreparedTraining:
    """Forward and backward. What a forward pass keeps: o, lse, m and l as one, and o_lo."""

    def __init__(self, args, q, k, v, kept, workspace_bytes, atomic, scalars):
        self.args, self.workspace_bytes, self.atomic, self.scalars = bytes(args), workspace_bytes, atomic, scalars
        self.strides = [t.stride()[:3] for t in (q, k, v, kept[0])]
        self.kept = [_Layout(t) for t in kept]
        self.rows_bytes = kept[1].numel() * 4
        self.low_strides = kept[3].stride()[:3] if kept[3].numel() else None
        self.backwards = {}  # by what is known of dout: a struct, its workspace, and dq, dk, dv

    def __call__(self, q, k, v, names):
        return _Trained.apply(q, k, v, self, None, names)

    def arguments(self, q, k, v, kept):
        o, lse, m_and_l, o_lo = kept
        args = _forward_args(self.args, self.strides, q, k, v, o, lse)
        m = m_and_l.data_ptr()
        low = (o_lo.data_ptr(), *self.low_strides) if self.low_strides else (0, 0, 0, 0)
        _KEPT.pack_into(args, _abi.ForwardArgs.m.offset, m, m + self.rows_bytes, *low)
        return args

    def forward(self, q, k, v, names):
        kept = [layout.made(q) for layout in self.kept]
        _run(_abi.library().flashphases_forward, self.arguments(q, k, v, kept), q, self.workspace_bytes, names)
        return kept

    def backward(self, dout, q, k, v, kept, names):
        """dq, dk, dv."""
        forward_args = self.arguments(q, k, v, kept)
        what = dout.stride(), dout.data_ptr() & 15
        if what not in self.backwards:
            gradients = [_like(t, t.shape[3], t.dtype) for t in (q, k, v)]
            args = _abi.BackwardArgs(ctypes.sizeof(_abi.BackwardArgs), 0, self.atomic, 0, 0, 0,
                                     ctypes.pointer(forward_args), _tensor(dout), None, *map(_tensor, gradients))
            workspace_bytes = 0
            if q.is_cuda:
                with _current(q.device):
                    workspace_bytes, _ = _workspace_and_mode(args, names, forward_args)
            self.backwards[what] = (bytes(args), workspace_bytes, [_Layout(t) for t in gradients])
        known, workspace_bytes, layouts = self.backwards[what]
        gradients = [layout.made(q) for layout in layouts]
        args = _abi.BackwardArgs.from_buffer_copy(known)
        args.forward = ctypes.pointer(forward_args)
        dq, dk, dv = ((t.data_ptr(), *layout.strides[:3]) for t, layout in zip(gradients, layouts))
        _ADDRESSES.pack_into(args, _abi.BackwardArgs.dout.offset, dout.data_ptr(), *what[0][:3], 0, *dq, *dk, *dv)
        _run(_abi.library().flashphases_backward, args, q, workspace_bytes, names)
        return gradients


def _run(call, args, q, workspace_bytes, names):
    if not q.is_cuda:
        return _abi.check(call(args, None, 0, None), names)
    with _current(q.device):
        workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=q.device) if workspace_bytes else None
        _abi.check(call(args, workspace.data_ptr() if workspace_bytes else None, workspace_bytes,
                        torch._C._cuda_getCurrentRawStream(q.get_device())), names)


class _Trained(torch.autograd.Function):
    """A prepared call under autograd. made: what it keeps where it was made already."""

    @staticmethod
    def forward(ctx, q, k, v, prepared, made, names):
        kept = made or prepared.forward(q, k, v, names)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.prepared, ctx.names = prepared, names
        return kept[0], kept[1]

    @staticmethod
    def backward(ctx, dout, dlse):
        q, k, v, *kept = ctx.saved_tensors
        prepared = ctx.prepared
        plain = dout is not None and dlse is None and not torch.is_grad_enabled() and _unwatched(q, k, v)
        if plain and type(dout) is Tensor and dout.dtype == q.dtype and _readable(dout) is dout:
            return (*prepared.backward(dout, q, k, v, kept, ctx.names), None, None, None)
        o, lse, m_and_l, o_lo = kept
        if dout is None:
            dout = torch.zeros_like(o, dtype=q.dtype)
        run = _backward if plain else backward  # who wants gradients of these gets the op, which refuses it
        gradients = run(dout, dlse, q, k, v, o, lse, *m_and_l.unbind(), o_lo, *[None] * 12, *prepared.scalars,
                        prepared.atomic, False, False, ctx.names)[:3]
        return (*gradients, None, None, None)


# ---- The two ops ----------------------------------------------------------------------------------------------------
# Both have a fake, for torch.compile and torch.export; the forward op has a gradient. What they are given beside q, k
# and v: attention() below says what it is; kind, left, right: the mask's number and bounds; names: whose words a
# refusal uses.


def _forward(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
             mask: Optional[Tensor], slopes: Optional[Tensor], doc_q: Optional[Tensor], doc_k: Optional[Tensor],
             block_mask: Optional[Tensor], cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor],
             seqused_q: Optional[Tensor], seqused_k: Optional[Tensor], seed: Optional[Tensor], kind: int, left: int,
             right: int, shift: int, scale: float, softcap: float, dropout: float, phase: int, keep: bool, wide: bool,
             atomic: bool, names: str) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    _check(names, q, k, v)
    results = _results(_readable(q), v, keep, wide)
    _fill(results, q, k, v, bias, sinks, mask, slopes, doc_q, doc_k, block_mask, cu_seqlens_q, cu_seqlens_k, seqused_q,
          seqused_k, seed, kind, left, right, shift, scale, softcap, dropout, phase, keep, names)
    return results


def _fill(results, q, k, v, bias, sinks, mask, slopes, doc_q, doc_k, block_mask, cu_seqlens_q, cu_seqlens_k, seqused_q,
          seqused_k, seed, kind, left, right, shift, scale, softcap, dropout, phase, keep, names):
    """The forward pass, into results: o, lse or None, and m, l, o_lo or None. Returns its arguments and how many bytes
    of workspace it took."""
    q, k, v = _readable(q), _readable(k), _readable(v)
    args = _arguments(q, k, v, *results, bias, mask, slopes, sinks, doc_q, doc_k, block_mask, cu_seqlens_q,
                      cu_seqlens_k, seqused_q, seqused_k, seed, kind, left, right, shift, scale, softcap, dropout,
                      phase)
    given = (keep, results[1] is None, bias is None, sinks is None, mask is None, slopes is None, doc_q is None,
             block_mask is None, cu_seqlens_q is None, seqused_q is None, seqused_k is None)
    return args, _call("flashphases_forward", args, q.device, names, given)


forward = torch.library.custom_op("flashphases::forward", _forward, mutates_args=())


@forward.register_fake
def _(q, k, v, bias, sinks, mask, slopes, doc_q, doc_k, block_mask, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k,
      seed, kind, left, right, shift, scale, softcap, dropout, phase, keep, wide, atomic, names):
    _check(names, q, k, v)
    return _results(_readable(q), v, keep, wide)


def _backward(dout: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, m: Tensor,
              l: Tensor, o_lo: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor], mask: Optional[Tensor],
              slopes: Optional[Tensor], doc_q: Optional[Tensor], doc_k: Optional[Tensor], block_mask: Optional[Tensor],
              cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], seqused_q: Optional[Tensor],
              seqused_k: Optional[Tensor], seed: Optional[Tensor], kind: int, left: int, right: int, shift: int,
              scale: float, softcap: float, dropout: float, atomic: bool, bias_wanted: bool, sinks_wanted: bool,
              names: str) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv, dbias, dsinks = gradients = _gradients(q, k, v, bias, sinks, bias_wanted, sinks_wanted)
    q, k, v, dout = _readable(q), _readable(k), _readable(v), _readable(dout)
    if dout.dtype != q.dtype:
        dout = dout.to(q.dtype)  # of an o in float32
    forward_args = _arguments(q, k, v, o, lse, m, l, o_lo, bias, mask, slopes, sinks, doc_q, doc_k, block_mask,
                              cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, seed, kind, left, right, shift, scale,
                              softcap, dropout, 0)
    if dlse is not None:
        dlse = dlse.contiguous()
    args = _abi.BackwardArgs(
        ctypes.sizeof(_abi.BackwardArgs), 0, atomic, 0, 0, 0, ctypes.pointer(forward_args), _tensor(dout),
        None if dlse is None else dlse.data_ptr(), _tensor(dq), _tensor(dk), _tensor(dv))
    if bias_wanted:
        args.dbias = _abi.shared("dbias", dbias, (q.shape[0], q.shape[1], q.shape[2], k.shape[2]), ["float32"])
    if sinks_wanted:
        args.dsinks = dsinks.data_ptr()
    given = (m.numel() > 0, dlse is None, bias is None, sinks is None, mask is None, slopes is None, doc_q is None,
             block_mask is None, cu_seqlens_q is None, seqused_q is None, seqused_k is None)
    _call("flashphases_backward", args, q.device, names, given, forward_args)
    if bias_wanted and bias.dtype != torch.float32:
        return dq, dk, dv, dbias.to(bias.dtype), dsinks
    return gradients


def _gradients(q, k, v, bias, sinks, bias_wanted, sinks_wanted):
    none = (0,)
    return (*(_like(t, t.shape[3], t.dtype) for t in (q, k, v)),
            q.new_empty(bias.shape if bias_wanted else none, dtype=torch.float32),
            q.new_empty(sinks.shape if sinks_wanted else none, dtype=torch.float32))


backward = torch.library.custom_op("flashphases::backward", _backward, mutates_args=())


@backward.register_fake
def _(dout, dlse, q, k, v, o, lse, m, l, o_lo, bias, sinks, mask, slopes, doc_q, doc_k, block_mask, cu_seqlens_q,
      cu_seqlens_k, seqused_q, seqused_k, seed, kind, left, right, shift, scale, softcap, dropout, atomic, bias_wanted,
      sinks_wanted, names):
    dq, dk, dv, dbias, dsinks = _gradients(q, k, v, bias, sinks, bias_wanted, sinks_wanted)
    return dq, dk, dv, dbias.to(bias.dtype) if bias_wanted else dbias, dsinks


def _save(ctx, inputs, output):
    tensors, scalars = inputs[:15], inputs[15:]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(*tensors, *output)
    kind, left, right, shift, scale, softcap, dropout, _, _, _, ctx.atomic, ctx.names = scalars
    ctx.scalars = kind, left, right, shift, scale, softcap, dropout


def _gradient(ctx, dout, dlse, *_):
    saved = ctx.saved_tensors
    q, k, v, bias, sinks, *others = saved[:15]
    o, lse, m, l, o_lo = saved[15:]
    if dout is None:
        dout = torch.zeros_like(o, dtype=q.dtype)
    bias_wanted, sinks_wanted = ctx.needs_input_grad[3], ctx.needs_input_grad[4]
    # Who wants gradients of these gets the op, which refuses it.
    run = _backward if not torch.is_grad_enabled() and _unwatched(q, k, v) else backward
    dq, dk, dv, dbias, dsinks = run(dout, dlse, q, k, v, o, lse, m, l, o_lo, bias, sinks, *others, *ctx.scalars,
                                    ctx.atomic, bias_wanted, sinks_wanted, ctx.names)
    return (dq, dk, dv, dbias if bias_wanted else None, dsinks if sinks_wanted else None, *[None] * 22)


forward.register_autograd(_gradient, setup_context=_save)


class _Plain(torch.autograd.Function):
    """The op's two functions without the op, whose way through torch costs a millisecond with so many arguments."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _forward(*inputs)
        _save(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, *gradients):
        return _gradient(ctx, *gradients)


def _no_second(ctx, *_):
    raise NotImplementedError("a gradient of the gradient of flashphases attention is wanted (create_graph=True); "
                              "expected first gradients; use torch's scaled_dot_product_attention with "
                              "torch.nn.attention.SDPBackend.MATH")


backward.register_autograd(_no_second, setup_context=lambda ctx, inputs, output: None)


# ---- The function ---------------------------------------------------------------------------------------------------


def _unwatched(q, k, v):
    """Plain tensors, and nobody traces, transforms or counts ops: then the op's way through torch is left out, which
    takes several times as long as the call."""
    return (type(q) is type(k) is type(v) is Tensor and not torch.compiler.is_compiling() and
            torch._C._len_torch_dispatch_stack() == 0 and torch._C._get_tracing_state() is None and
            torch._C._functorch.peek_interpreter_stack() is None)


def attention(q, k, v, causal=None, scale=None, with_lse=False, *, window=None, align=None, shift=0, softcap=0.0,
              bias=None, mask=None, slopes=None, sinks=None, doc_q=None, doc_k=None, block_mask=None,
              cu_seqlens_q=None, cu_seqlens_k=None, seqused_q=None, seqused_k=None, dropout=0.0, seed=None,
              wide_output=False, deterministic=None, phase=0, names="attention"):
    """softmax(q kᵀ · scale) v: o [B, H, Sq, Dv], or (o, lse) with lse [B, H, Sq], float32, its natural logarithm.

    q [B, H, Sq, D], k [B, Hk, Sk, D], v [B, Hk, Sk, Dv], float32, float16 or bfloat16, with any strides; Hk divides H.
    Gradients: of o and of lse, with respect to q, k, v, bias and sinks. docs/conventions.md has the formulas.

    causal: None, "top-left" (torch's is_causal) or "bottom-right"; scale: 1/sqrt(D) if None.
    window: keys to the left and to the right, (left, right), None for all; align names the diagonal if causal does not.
    shift: rows are so many further down than their numbers say. softcap: scores become softcap * tanh(score / softcap).
    bias [B|1, H|1, Sq|1, Sk] of q's type is added; mask, likewise, bool: False hides the key. slopes [B|1, H]: ALiBi.
    sinks [H] float32: logits that only the denominator sees. doc_q [B|1, Sq], doc_k [B|1, Sk] int32: a row sees its
    document's keys. block_mask [B|1, H|1, Sq/64, Sk/64] uint8: 0 hides, 1 asks mask and documents, 2 sees all.
    cu_seqlens_q, cu_seqlens_k [N + 1], seqused_q, seqused_k [N], int32: lengths, packed (B is 1) or padded.
    dropout: the share of P that is left out; seed: drawn from torch's generator of the CPU if None.
    wide_output: o in float32. deterministic: same input, same gradients' bits; None: as torch is set, and on a CPU.
    phase: a number in place of the fastest forward pass. Refusals are ValueError and NotImplementedError.
    """
    unwatched = _unwatched(q, k, v)
    to = torch.get_autocast_dtype(q.device.type) if torch.is_autocast_enabled(q.device.type) else None
    autocast = to is not None and any(t is not None and t.dtype is not to for t in (q, k, v, bias))
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    key = None
    if (unwatched and not autocast and bias is mask is slopes is sinks is doc_q is block_mask is cu_seqlens_q is
            seqused_q is seqused_k is doc_k is cu_seqlens_k is None and not dropout):
        keep = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        key = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device,
               k.device, v.device, (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15, causal, scale, with_lse, align,
               window and tuple(window), shift, softcap, wide_output, phase, torch.get_num_threads(), keep,
               deterministic)
        prepared = _prepared.get(key)
        if prepared is not None:
            o, lse = prepared(q, k, v, names)
            return (o, lse) if with_lse else o
    kind, left, right = _abi.mask_of(causal, window, align)
    if autocast:
        q, k, v = q.to(to), k.to(to), v.to(to)
        bias = None if bias is None else bias.to(to)
    tensors = dict(bias=bias, sinks=sinks, mask=mask, slopes=slopes, doc_q=doc_q, doc_k=doc_k, block_mask=block_mask,
                   cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k)
    _check(names, q, k, v, **tensors)
    if dropout and seed is None:
        seed = torch.randint(1 << 62, (), dtype=torch.int64)
    elif seed is not None and not isinstance(seed, Tensor):
        seed = torch.tensor(seed, dtype=torch.int64)
    keep = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (q, k, v, bias, sinks))
    atomic = q.device.type == "cuda" and not deterministic
    scale = 1 / math.sqrt(max(q.shape[3], 1)) if scale is None else float(scale)
    rest = seed, kind, left, right, shift, scale, float(softcap), float(dropout), phase, keep
    if key is not None and keep and all(t is _readable(t) for t in (q, k, v)):
        o, lse, none, _, o_lo = _results(q, v, True, wide_output)
        kept = o, lse, none.new_empty((2, *none.shape)), o_lo
        args, workspace_bytes = _fill((o, lse, *kept[2].unbind(), o_lo), q, k, v, *tensors.values(), *rest, names)
        prepared = _PreparedTraining(args, q, k, v, kept, workspace_bytes, atomic, rest[1:8])
        _prepare(key, prepared)
        o, lse = _Trained.apply(q, k, v, prepared, kept, names)
    elif unwatched and not keep:
        o = _like(_readable(q), v.shape[3], torch.float32 if wide_output else q.dtype)
        lse = q.new_empty(q.shape[:3], dtype=torch.float32) if with_lse else None
        args, workspace_bytes = _fill((o, lse, None, None, None), q, k, v, *tensors.values(), *rest, names)
        if key is not None and all(t is _readable(t) for t in (q, k, v)):
            _prepare(key, _Prepared(args, q, k, v, o, with_lse, workspace_bytes))
    else:
        run = _Plain.apply if unwatched else forward
        o, lse, *_ = run(q, k, v, *tensors.values(), *rest, wide_output, atomic, names)
    return (o, lse) if with_lse else o


def gradients(q, k, v, o, lse, dout, dlse=None, causal=None, scale=None, *, window=None, align=None, softcap=0.0,
              deterministic=None, names="attention"):
    """dq, dk, dv of a call of attention(), for an autograd function of one's own that has kept o and lse.

    o [B, H, Sq, Dv], lse [B, H, Sq]: what attention(…, with_lse=True) has returned for the same arguments; dout, dlse:
    the gradients with respect to them. attention() itself keeps more, for more precise gradients (docs/backward.md).
    """
    kind, left, right = _abi.mask_of(causal, window, align)
    _check(names, q, k, v, o=o, lse=lse, dout=dout, dlse=dlse)
    for name, t, shape in (("o", o, (*q.shape[:3], v.shape[3])), ("dout", dout, (*q.shape[:3], v.shape[3])),
                           ("lse", lse, tuple(q.shape[:3])), ("dlse", dlse, tuple(q.shape[:3]))):
        if t is not None and tuple(t.shape) != shape:
            _abi.refuse(f"{name}'s shape", list(t.shape), list(shape))
    if lse.dtype != torch.float32:
        _abi.refuse("lse's type", lse.dtype, torch.float32)
    if o.dtype not in (q.dtype, torch.float32):
        _abi.refuse("o's type", o.dtype, f"{q.dtype} or torch.float32")
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    none, scale = q.new_empty((0,), dtype=torch.float32), 1 / math.sqrt(max(q.shape[3], 1)) if scale is None else scale
    return _backward(dout, dlse, q, k, v, _readable(o), lse.contiguous(), none, none, none, *[None] * 12, kind, left,
                     right, 0, float(scale), float(softcap), 0.0, q.is_cuda and not deterministic, False, False,
                     names)[:3]


# ---- As torch has it ------------------------------------------------------------------------------------------------


def _mask_and_bias(attn_mask, query, shape):
    """(bool mask, bias), broadcast to `shape` with axes of 1 left as they are; the keys' axis is whole."""
    if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        _abi.refuse("attn_mask's type", attn_mask.dtype, f"torch.bool, torch.float32 or {query.dtype}, query's")
    if attn_mask.dtype == torch.float32:
        attn_mask = attn_mask.to(query.dtype)  # the type that a bias has
    try:
        torch.broadcast_shapes(attn_mask.shape, shape)
        fits = attn_mask.dim() <= len(shape)
    except RuntimeError:
        fits = False
    if not fits or any(n not in (1, most) for n, most in zip(reversed(attn_mask.shape), reversed(shape))):
        _abi.refuse("attn_mask's shape", list(attn_mask.shape), f"one that broadcasts to {list(shape)}")
    attn_mask = attn_mask.reshape((1,) * (len(shape) - attn_mask.dim()) + tuple(attn_mask.shape))
    if len(shape) > 4 and any(n > 1 for n in attn_mask.shape[:-3]):
        attn_mask = attn_mask.expand(*shape[:-3], *attn_mask.shape[-3:])
    lead = math.prod(attn_mask.shape[:-3])
    attn_mask = attn_mask.expand(*attn_mask.shape[:-1], shape[-1]).reshape(lead, *attn_mask.shape[-3:-1], shape[-1])
    if shape[-1] > 1 and attn_mask.stride(3) != 1:
        attn_mask = attn_mask.contiguous()
    return (attn_mask, None) if attn_mask.dtype == torch.bool else (None, attn_mask)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """As torch.nn.functional.scaled_dot_product_attention, arguments and meaning. A row that attn_mask hides all keys
    from gives 0. query [..., H, L, E], key [..., Hk, S, E], value [..., Hk, S, Ev]."""
    if is_causal and attn_mask is not None:
        _abi.refuse("attn_mask", "given", "None beside is_causal=True")
    if min(query.dim(), key.dim(), value.dim()) < 2:
        _abi.refuse("shapes of query, key, value", [list(t.shape) for t in (query, key, value)], "two axes or more")
    dims = max(query.dim(), key.dim(), value.dim())
    q, k, v = query, key, value
    plain = query.dim() == key.dim() == value.dim() == 4 and query.shape[0] == key.shape[0] == value.shape[0]
    if not plain:
        q, k, v = (t.reshape((1,) * (max(dims, 4) - t.dim()) + tuple(t.shape)) for t in (query, key, value))
    lead = q.shape[:1] if plain else torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    H, Hk = q.shape[-3], k.shape[-3]
    if not enable_gqa and not H == Hk == v.shape[-3]:
        _abi.refuse("number of heads of query, key, value", [H, Hk, v.shape[-3]], "one number, or enable_gqa=True")
    mask = bias = None
    if attn_mask is not None:
        mask, bias = _mask_and_bias(attn_mask, query, (*lead, H, q.shape[-2], k.shape[-2]))
    if not plain:
        q, k, v = (t.expand(*lead, *t.shape[-3:]).reshape(-1, *t.shape[-3:]) for t in (q, k, v))
    o = attention(q, k, v, "top-left" if is_causal else None, scale, mask=mask, bias=bias, dropout=dropout_p,
                  names="sdpa")
    if plain:
        return o
    return o.reshape((*lead, *o.shape[1:])[max(4 - dims, 0):])


@contextlib.contextmanager
def sdpa(fallback=False):
    """Within it torch.nn.functional.scaled_dot_product_attention is this module's, for all threads.
    fallback: what is refused is computed by torch's own; else the refusal is raised."""
    functional = torch.nn.functional
    torchs = functional.scaled_dot_product_attention

    def ours_or_torchs(*args, **kwargs):
        try:
            return scaled_dot_product_attention(*args, **kwargs)
        except (ValueError, NotImplementedError):
            return torchs(*args, **kwargs)
    functional.scaled_dot_product_attention = ours_or_torchs if fallback else scaled_dot_product_attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = torchs
