"""dlpack.py: an example: arrays of JAX, or of whatever has __dlpack__, through flashphases without a copy.
Of a GPU by torch, which has streams; of the CPU by NumPy.
Use: o = attention(q, k, v, jax.dlpack.from_dlpack, causal="top-left")
"""

import flashphases

CPU = 1  # DLPack's kDLCPU


def attention(q, k, v, back, **options):
    """q, k, v [B, H, S, D] of one framework; `back` makes its array of what has __dlpack__. JAX's arrays are not to be
    written to; none of them is."""
    if q.__dlpack_device__()[0] == CPU:
        from numpy import from_dlpack
    else:
        from torch import from_dlpack
    return back(flashphases.attention(*(from_dlpack(t) for t in (q, k, v)), **options))
