"""numpy.py: attention of NumPy arrays [B, H, S, D] by the definition, on the CPU, and its gradients; with the variable
FLASHPHASES_MACHINE by a phase's kernel on the simulator.
float32, float16, and bfloat16 as ml_dtypes has it; strides as they are, D contiguous; nothing is copied.
Use: o, lse = attention(q, k, v, causal="top-left", with_lse=True)
"""

import numpy

from ._abi import HOST, backward_args, check, forward_args, library


def attention(q, k, v, causal=None, scale=None, with_lse=False, **features):
    """softmax(q kᵀ · scale) v as o [B, H, Sq, Dv]; with_lse: (o, lse), lse [B, H, Sq] float32, natural logarithm.

    causal: None, "top-left" or "bottom-right". features: threads, window, align, softcap, slopes, bias, mask, doc_q,
    doc_k, block_mask, sinks, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, dropout, seed, shift; what they mean:
    docs/conventions.md.
    """
    o = numpy.empty((*q.shape[:3], v.shape[3]), q.dtype)
    lse = numpy.empty(q.shape[:3], numpy.float32) if with_lse else None
    args = forward_args(q, k, v, o, lse, causal, scale, machine=HOST, **features)
    check(library().flashphases_forward(args, None, 0, None))
    return (o, lse) if with_lse else o


def gradients(q, k, v, o, lse, dout, dlse=None, causal=None, scale=None, **features):
    """dq, dk, dv of a call of attention() with the same features; o and lse are what it has returned; dout: the
    gradient of the loss with respect to o; dlse: with respect to lse. A dictionary: dbias (float32) and dsinks are in
    it where bias and sinks are given."""
    grads = {"d" + name: numpy.empty(t.shape, t.dtype) for name, t in {"q": q, "k": k, "v": v}.items()}
    for name in ("bias", "sinks"):
        if features.get(name) is not None:
            grads["d" + name] = numpy.empty(features[name].shape, numpy.float32)
    forward = forward_args(q, k, v, o, lse, causal, scale, machine=HOST, **features)
    check(library().flashphases_backward(backward_args(forward, dout, dlse=dlse, **grads), None, 0, None))
    return grads
